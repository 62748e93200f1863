//! Tools from Debian's packages, and a whole Debian.
//!
//! apt-get fetches the packages, and dpkg-deb takes them apart in a folder below `target/tools`. Nothing is installed into the
//! system, and no service starts.

use super::{stamp, stamped, tools_dir};
use crate::shell::Run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// A browser without a screen.
const CHROMIUM: &str = "chromium-headless-shell";
/// Boots a folder with a Debian in it.
const NSPAWN: &str = "systemd-container";
/// Makes such a folder.
const DEBOOTSTRAP: &str = "debootstrap";
/// The packages of a machine besides those that every Debian has.
const MACHINE: &str = "ca-certificates,dbus,iproute2,systemd,systemd-sysv";

/// The program of etcd: the machine's own, or Debian's.
pub fn etcd() -> Result<PathBuf> {
    match on_path("etcd") {
        Some(program) => Ok(program),
        None => Ok(extracted("etcd", Wanted::Alone("etcd-server"), "usr/bin/etcd")?.join("usr/bin/etcd")),
    }
}

/// A Chromium without a screen, and the folders of libraries that it needs besides the machine's.
pub fn chromium() -> Result<(PathBuf, String)> {
    let program = "usr/lib/chromium/chromium-headless-shell";
    let dir = extracted("chromium", Wanted::WithDependencies(CHROMIUM), program)?;
    let libraries = libraries(&dir);
    let of_sound = libraries.join("pulseaudio");
    Ok((
        dir.join(program),
        format!("{}:{}", libraries.display(), of_sound.display()),
    ))
}

/// `systemd-nspawn`.
pub fn nspawn() -> Result<Run> {
    let program = "usr/bin/systemd-nspawn";
    if let Some(program) = on_path("systemd-nspawn") {
        return Ok(Run::new(program));
    }
    let dir = extracted("nspawn", Wanted::WithDependencies(NSPAWN), program)?;
    let own = libraries(&dir).join("systemd");
    Ok(Run::new(dir.join(program)).env("LD_LIBRARY_PATH", own))
}

/// A folder with a small Debian of the release of this machine: a machine that nobody has used yet. Only root can make it.
pub fn tree() -> Result<PathBuf> {
    let release = release()?;
    let dir = tools_dir()?.join("debian");
    let wanted = format!("{release} {MACHINE}");
    if stamped("debian", &wanted)? && dir.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("emptying {}", dir.display()))?;
    }
    let command = match on_path(DEBOOTSTRAP) {
        Some(program) => Run::new(program),
        None => {
            let program = "usr/sbin/debootstrap";
            let from = extracted(DEBOOTSTRAP, Wanted::WithDependencies(DEBOOTSTRAP), program)?;
            let mut path = from.join("usr/bin").into_os_string();
            path.push(":");
            path.push(std::env::var_os("PATH").unwrap_or_default());
            Run::new(from.join(program))
                .env("DEBOOTSTRAP_DIR", from.join("usr/share/debootstrap"))
                .env("PATH", path)
        }
    };
    let made = command
        .args(["--variant=minbase", &format!("--include={MACHINE}"), &release])
        .args([&dir])
        .output();
    made.with_context(|| format!("making a Debian; see {}", dir.join("debootstrap").display()))?;
    stamp("debian", &wanted)?;
    Ok(dir)
}

/// The name of the release of this machine, such as `bookworm`.
fn release() -> Result<String> {
    let about = fs::read_to_string("/etc/os-release").context("this task needs a Debian")?;
    let name = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("this task needs a Debian with a release")?.to_owned())
}

/// The program of this name that the machine has.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    programs.into_iter().find(|program| program.is_file())
}

/// A package to fetch.
enum Wanted {
    /// Anybody can fetch it.
    Alone(&'static str),
    /// With the packages that it needs and the machine lacks. Only root can fetch these: apt-get takes its lock.
    WithDependencies(&'static str),
}

/// The folder of a tool into which a package was extracted that has the program.
fn extracted(tool: &str, wanted: Wanted, program: &str) -> Result<PathBuf> {
    let dir = tools_dir()?.join(tool);
    if dir.join(program).exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("emptying {}", dir.display()))?;
    }
    let archives = dir.join("archives");
    fs::create_dir_all(archives.join("partial")).with_context(|| format!("making {}", dir.display()))?;
    // Else apt's own user would have to be able to write here.
    let fetch = Run::new("apt-get").args(["-qq", "-o", "APT::Sandbox::User=root"]);
    let (package, fetch) = match wanted {
        Wanted::Alone(package) => (package, fetch.args(["download", package]).dir(&archives)),
        Wanted::WithDependencies(package) => {
            let into = format!("Dir::Cache::archives={}", archives.display());
            let fetch = fetch.args(["-o", &into, "--yes", "--download-only", "--no-install-recommends"]);
            (package, fetch.args(["install", package]))
        }
    };
    fetch
        .check()
        .context("this task needs a Debian with package lists (apt-get update)")?;
    for file in fs::read_dir(&archives)? {
        let file = file?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            Run::new("dpkg-deb")
                .args(["--extract".as_ref(), file.as_os_str(), dir.as_os_str()])
                .check()?;
        }
    }
    fs::remove_dir_all(&archives)?;
    ensure!(dir.join(program).exists(), "Debian's {package} has no {program}");
    Ok(dir)
}

fn libraries(dir: &Path) -> PathBuf {
    dir.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}

//! The tree and the control files of the Debian package.

use super::licences::Materials;
use super::source;
use crate::shell::{Run, root};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The line of the reference of settings that names the data, and the one of the package.
const DATA: (&str, &str) = ("#data = \"./stele-data\"", "data = \"/var/lib/stele/data\"");

/// Files that an upgrade does not replace once the administrator has changed them.
const CONFFILES: &str = "/etc/stele/stele.env\n/etc/stele/stele.toml\n";

const DESCRIPTION: &str = "wide-column database with the Bigtable and HBase APIs
 Stele stores rows, sorted by key, of timestamped cells in column families. It
 serves the Cloud Bigtable API and HBase's protocol, so that their clients work
 unchanged. It keeps its data on a local disk, in an object store or in HDFS,
 and runs as one server or as a cluster.
";

/// Builds the package in `out` from a tree that is made at `tree`.
pub fn build(program: &Path, materials: &Materials, tree: &Path, out: &Path) -> Result<PathBuf> {
    let stele = tree.join("usr/bin/stele");
    make_parent(&stele)?;
    Run::new("strip")
        .args([
            "--strip-debug".as_ref(),
            "-o".as_ref(),
            stele.as_os_str(),
            program.as_os_str(),
        ])
        .check()
        .context("this task needs binutils")?;
    set_mode(&stele, 0o755)?;
    settings(tree, &stele)?;
    manual(tree, &stele)?;
    documents(tree, materials)?;
    let control = tree.join("DEBIAN");
    fs::create_dir_all(&control)?;
    for script in ["postinst", "prerm", "postrm"] {
        put(
            &control.join(script),
            &source(&format!("deploy/debian/{script}"))?,
            0o755,
        )?;
    }
    put(&control.join("conffiles"), CONFFILES, 0o644)?;
    put(&control.join("control"), &control_file(tree, &stele)?, 0o644)?;
    put(&control.join("md5sums"), &checksums(tree)?, 0o644)?;
    let package = package(out)?;
    Run::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([tree, package.as_path()])
        .env("SOURCE_DATE_EPOCH", time_of_commit()?)
        .check()
        .context("this task needs a Debian")?;
    Ok(package)
}

/// The package that [`build`] makes in a folder.
pub fn package(out: &Path) -> Result<PathBuf> {
    Ok(out.join(format!("stele_{}_{}.deb", version()?, architecture()?)))
}

/// The unit and the settings.
fn settings(tree: &Path, stele: &Path) -> Result<()> {
    let reference = Run::new(stele).args(["config", "--defaults"]).output()?;
    ensure!(
        reference.contains(DATA.0),
        "the reference of settings has no line {:?}",
        DATA.0
    );
    put(
        &tree.join("etc/stele/stele.toml"),
        &reference.replace(DATA.0, DATA.1),
        0o644,
    )?;
    put(
        &tree.join("etc/stele/stele.env"),
        &source("deploy/debian/stele.env")?,
        0o600,
    )?;
    let unit = source("deploy/systemd/stele.service")?;
    put(&tree.join("usr/lib/systemd/system/stele.service"), &unit, 0o644)
}

/// Manual pages and completions.
fn manual(tree: &Path, stele: &Path) -> Result<()> {
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    Run::new(stele).args(["man", "--dir"]).args([&pages]).check()?;
    for page in fs::read_dir(&pages)? {
        let page = page?.path();
        set_mode(&page, 0o644)?;
        compress(&page)?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/stele"),
        ("zsh", "usr/share/zsh/vendor-completions/_stele"),
        ("fish", "usr/share/fish/vendor_completions.d/stele.fish"),
    ] {
        let script = Run::new(stele).args(["completions", shell]).output()?;
        put(&tree.join(path), &script, 0o644)?;
    }
    Ok(())
}

/// The licence, those of others, the bill of materials, and the changes.
fn documents(tree: &Path, materials: &Materials) -> Result<()> {
    let folder = tree.join("usr/share/doc/stele");
    let copyright = format!(
        "Stele is distributed under the Apache License 2.0.\nThe program contains the work of others: see \
         third-party.txt.gz and stele.cdx.json.gz in this folder.\n\n{}",
        source("LICENSE")?
    );
    put(&folder.join("copyright"), &copyright, 0o644)?;
    for (name, text) in [
        ("third-party.txt", &materials.licences),
        ("stele.cdx.json", &materials.sbom),
        ("changelog", &source(&format!("changelog/{}.md", version()?))?),
    ] {
        let path = folder.join(name);
        put(&path, text, 0o644)?;
        compress(&path)?;
    }
    Ok(())
}

fn control_file(tree: &Path, stele: &Path) -> Result<String> {
    let files = files(tree)?;
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(tree.join(file))?.len();
    }
    Ok(format!(
        "Package: stele\nVersion: {}\nSection: database\nPriority: optional\nArchitecture: {}\nMaintainer: The Stele \
         developers <stele@localhost>\nInstalled-Size: {}\nDepends: libc6 (>= {}), libgcc-s1, adduser, \
         init-system-helpers (>= 1.54)\nRecommends: ca-certificates\nDescription: {DESCRIPTION}",
        version()?,
        architecture()?,
        bytes.div_ceil(1024),
        glibc(&fs::read(stele)?).context("the program needs no C library")?,
    ))
}

/// The newest version of the C library that a program asks for.
fn glibc(program: &[u8]) -> Option<String> {
    let marker = b"GLIBC_2.";
    let mut newest = None;
    for (at, _) in program
        .windows(marker.len())
        .enumerate()
        .filter(|(_, window)| window == marker)
    {
        let rest = program.get(at + marker.len()..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        let minor: Option<u32> = String::from_utf8(digits.copied().collect()).ok()?.parse().ok();
        newest = newest.max(minor);
    }
    newest.map(|minor| format!("2.{minor}"))
}

/// The lines of `md5sum` for all files but the control files.
fn checksums(tree: &Path) -> Result<String> {
    Run::new("md5sum").args(files(tree)?).dir(tree).output()
}

/// The files of the tree, by name, without the control files.
fn files(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true if path.ends_with("DEBIAN") => {}
                true => folders.push(path),
                false => found.push(path.strip_prefix(tree)?.to_owned()),
            }
        }
    }
    found.sort();
    Ok(found)
}

fn compress(path: &Path) -> Result<()> {
    Run::new("gzip")
        .args(["-9", "--no-name", "--force"])
        .args([path])
        .check()
}

fn put(path: &Path, text: &str, mode: u32) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| path.display().to_string())?;
    set_mode(path, mode)
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path with a folder")?;
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// The version of the workspace.
fn version() -> Result<String> {
    let manifest = source("Cargo.toml")?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    Ok(line
        .context("the workspace has a version")?
        .trim_matches('"')
        .to_owned())
}

fn architecture() -> Result<String> {
    let output = Run::new("dpkg").args(["--print-architecture"]).output();
    Ok(output.context("this task needs a Debian")?.trim().to_owned())
}

/// The time of the last commit; that of the epoch where there is no repository.
fn time_of_commit() -> Result<String> {
    let output = Run::new("git").args(["log", "-1", "--format=%ct"]).dir(root()).output();
    Ok(output.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        let program = b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_2.x";
        assert_eq!(glibc(program).as_deref(), Some("2.34"));
        assert_eq!(glibc(b"static"), None);
    }

    #[test]
    fn the_package_has_a_version_and_a_changelog() {
        let version = version().unwrap();
        assert!(source(&format!("changelog/{version}.md")).is_ok(), "{version}");
    }
}

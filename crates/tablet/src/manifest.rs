//! Manifests: the durable description of a tablet.
//!
//! A manifest is a whole, immutable version of the tablet's state. Versions are numbered and created with
//! create-if-absent, which makes each creation a compare-and-swap. Of two owners only one can make version n + 1; the
//! other learns from the collision that it has been replaced. Fencing thus lives in storage. Byte table:
//! `docs/formats/manifest.md`.
//!
//! Invariants that make it safe against an owner that slept for any time at any point:
//! * An owner passes a number only when the version of that number is known to be its own. So a former owner never gets
//!   past the version that replaced it, even after errors.
//! * Having made a version, an owner asks whether it still owns the storage before it deletes the files that the version
//!   replaces. If it does, the next owner comes later and reads this version. The versions themselves are no evidence of
//!   that. The new owner deletes its older versions, among them the one that took the tablet. It also deletes all
//!   versions of a tablet that it has split, so a former owner may find its number free again.
//! * It also checks whether its version is the newest: so storage without owners notices two processes, too.
//! * An owner that knows that it was replaced deletes nothing any more.
//! * A version whose put failed may exist under a name that does not survive power loss. It is synced before anything is
//!   built on it.

use crate::error::{Result, TabletError};
use crate::file_header::FileKind;
use crate::tokens::StoredTokens;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_storage::{Storage, StorageError};
use stele_types::{Epoch, FileId, GroupId, RowRange, SeqNo, TableId, TabletId};

const MAGIC: [u8; 8] = *b"STELEMAN";
const VERSION: u32 = 3;
/// Before request tokens. Written where there are none.
const VERSION_WITHOUT_TOKENS: u32 = 2;
/// Before references named value files. Written where none does.
const VERSION_WITHOUT_VALUES: u32 = 1;
/// Largest payload: 100,000 file references of 600 bytes. Nothing larger is read, so nothing larger is written.
const BYTES_MAX: usize = 64 << 20;
const KIND: FileKind = FileKind {
    magic: MAGIC,
    version_max: VERSION,
    bytes_max: BYTES_MAX,
    name: "a manifest",
};
/// Bytes of these that are reserved for the next owner: its epoch and its time take 17 bytes at most, with their tags.
const CLAIM_BYTES: usize = 32;
/// References that drops of rows may leave, in bytes of a payload: each cuts files into parts with bounds of up to two long rows.
/// The other half is for flushes, without which memory would fill up, and for compactions, which make parts go.
const CUT_BYTES_MAX: usize = BYTES_MAX / 2;
/// The bytes above which compactions rewrite files that drops have cut, without any other reason: half of that, so that
/// drops go on meanwhile.
pub(crate) const CUT_BYTES_EASY: usize = CUT_BYTES_MAX / 2;

/// One version of a tablet's state.
#[derive(Clone, PartialEq, Message)]
pub struct Manifest {
    /// Which tablet.
    #[prost(uint64, tag = "1")]
    pub tablet: u64,
    /// Of which table.
    #[prost(uint64, tag = "2")]
    pub table: u64,
    /// Ownership generation of the writer.
    #[prost(uint32, tag = "3")]
    pub epoch: u32,
    /// First row.
    #[prost(bytes = "bytes", tag = "4")]
    pub start: Bytes,
    /// First row past the tablet; absent at the end of the table.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub end: Option<Bytes>,
    /// Every mutation up to this sequence number is in the files.
    #[prost(uint64, tag = "6")]
    pub flushed_through: u64,
    /// The locality groups that have files.
    #[prost(message, repeated, tag = "7")]
    pub groups: Vec<GroupFiles>,
    /// Wall-clock microseconds at which it was written; for people.
    #[prost(int64, tag = "8")]
    pub written_micros: i64,
    /// The recent request tokens whose mutations are in the files.
    #[prost(message, optional, tag = "16")]
    pub request_tokens: Option<StoredTokens>,
}

/// The files of one locality group, in sorted runs; of any key the oldest run that holds it comes first.
#[derive(Clone, PartialEq, Message)]
pub struct GroupFiles {
    /// Which group.
    #[prost(uint32, tag = "1")]
    pub group: u32,
    /// Its files, run by run.
    #[prost(message, repeated, tag = "2")]
    pub files: Vec<FileRef>,
}

/// A reference to an sstable, possibly to a part of it.
#[derive(Clone, PartialEq, Message)]
pub struct FileRef {
    /// Which file.
    #[prost(uint64, tag = "1")]
    pub file: u64,
    /// Its bytes.
    #[prost(uint64, tag = "2")]
    pub len: u64,
    /// Keys below this are not referenced.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub lower: Option<Bytes>,
    /// Keys from this on are not referenced.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub upper: Option<Bytes>,
    /// Its entries.
    #[prost(uint64, tag = "5")]
    pub cells: u64,
    /// Its tombstones.
    #[prost(uint64, tag = "6")]
    pub deletes: u64,
    /// About how many of its bytes are referenced.
    #[prost(uint64, tag = "7")]
    pub referenced: u64,
    /// Neighbours of the list with the same number other than 0 are one sorted run: ascending, without overlap, of one
    /// age. 0 is a run of its own.
    #[prost(uint64, tag = "8")]
    pub run: u64,
    /// The value files that its entries refer to.
    #[prost(message, repeated, tag = "9")]
    pub values: Vec<ValueLink>,
}

/// That entries of an sstable refer to a value file.
#[derive(Clone, PartialEq, Message)]
pub struct ValueLink {
    /// Which value file.
    #[prost(uint64, tag = "1")]
    pub file: u64,
    /// Its bytes.
    #[prost(uint64, tag = "2")]
    pub len: u64,
    /// How many of its bytes are the tablet's; the largest of a tablet's references counts.
    #[prost(uint64, tag = "3")]
    pub share: u64,
    /// Bytes of its records that the referenced part of the sstable refers to: exact until a reference is cut.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
}

impl ValueLink {
    /// Which value file.
    pub fn id(&self) -> FileId {
        FileId(self.file)
    }
}

/// A file that manifests name. All kinds share one sequence of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoredFile {
    /// An sstable.
    Sstable(FileId),
    /// A value file.
    Values(FileId),
}

impl StoredFile {
    /// Which file.
    pub fn id(self) -> FileId {
        match self {
            StoredFile::Sstable(file) | StoredFile::Values(file) => file,
        }
    }

    /// Where it is.
    pub fn path(self) -> String {
        match self {
            StoredFile::Sstable(file) => format!("sst/{:016x}.sst", file.0),
            StoredFile::Values(file) => format!("sst/{:016x}.val", file.0),
        }
    }

    /// The file of a path. Accepts only paths that [`StoredFile::path`] makes: no capital digits, no signs.
    pub fn parse_path(path: &str) -> Option<StoredFile> {
        let (digits, ending) = path.strip_prefix("sst/")?.split_once('.')?;
        let file = FileId(u64::from_str_radix(digits, 16).ok()?);
        let file = match ending {
            "sst" => StoredFile::Sstable(file),
            "val" => StoredFile::Values(file),
            _ => return None,
        };
        (file.path() == path).then_some(file)
    }
}

impl FileRef {
    /// Which file.
    pub fn id(&self) -> FileId {
        FileId(self.file)
    }

    /// The sstable and the value files it refers to.
    pub fn stored(&self) -> impl Iterator<Item = StoredFile> + '_ {
        self.stored_with_lens().map(|(file, _)| file)
    }

    /// The same, with their bytes.
    pub fn stored_with_lens(&self) -> impl Iterator<Item = (StoredFile, u64)> + '_ {
        let values = self.values.iter().map(|link| (StoredFile::Values(link.id()), link.len));
        std::iter::once((StoredFile::Sstable(self.id()), self.len)).chain(values)
    }

    /// Bytes of values that the referenced part refers to.
    pub fn value_bytes(&self) -> u64 {
        self.values.iter().map(|link| link.bytes).sum()
    }

    /// Whether `next`, the following reference of a list, belongs to the same run.
    pub fn continues_in(&self, next: &FileRef) -> bool {
        self.run != 0 && self.run == next.run
    }

    /// The path of an sstable.
    pub fn path(file: FileId) -> String {
        StoredFile::Sstable(file).path()
    }

    /// The sstable of a path. Accepts only paths that [`FileRef::path`] makes: no capital digits, no signs.
    pub fn parse_path(path: &str) -> Option<FileId> {
        match StoredFile::parse_path(path)? {
            StoredFile::Sstable(file) => Some(file),
            StoredFile::Values(_) => None,
        }
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the bounds leave nothing.
    pub fn narrowed(&self, lower: Option<Bytes>, upper: Option<Bytes>) -> Option<FileRef> {
        let mut cut = self.clone();
        cut.lower = self.lower.clone().max(lower);
        cut.upper = match (self.upper.clone(), upper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        debug_assert!(cut.lower >= self.lower, "a cut reference begins no earlier");
        let empty = matches!((&cut.lower, &cut.upper), (Some(l), Some(u)) if l >= u);
        (!empty).then_some(cut)
    }
}

impl Manifest {
    /// The rows.
    pub fn range(&self) -> RowRange {
        RowRange {
            start: self.start.clone(),
            end: self.end.clone(),
        }
    }

    /// Which tablet.
    pub fn tablet(&self) -> TabletId {
        TabletId(self.tablet)
    }

    /// Of which table.
    pub fn table(&self) -> TableId {
        TableId(self.table)
    }

    /// Every mutation up to this is in the files.
    pub fn flushed_through(&self) -> SeqNo {
        SeqNo(self.flushed_through)
    }

    /// The files of a group, oldest first.
    pub fn files(&self, group: GroupId) -> &[FileRef] {
        self.groups
            .iter()
            .find(|g| g.group == group.0)
            .map_or(&[], |g| &g.files)
    }

    /// Replaces the files of a group.
    pub fn set_files(&mut self, group: GroupId, files: Vec<FileRef>) {
        self.groups.retain(|g| g.group != group.0);
        self.groups.push(GroupFiles { group: group.0, files });
        self.groups.sort_by_key(|g| g.group);
        debug_assert!(
            self.groups
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.group < b.group)),
            "each group is listed once"
        );
    }

    /// Every reference, over all groups.
    pub fn all_files(&self) -> impl Iterator<Item = &FileRef> {
        self.groups.iter().flat_map(|g| &g.files)
    }

    /// Every file it names, some more than once.
    pub fn stored(&self) -> impl Iterator<Item = StoredFile> {
        self.stored_with_lens().map(|(file, _)| file)
    }

    /// The same, with their bytes.
    pub fn stored_with_lens(&self) -> impl Iterator<Item = (StoredFile, u64)> {
        self.all_files().flat_map(FileRef::stored_with_lens)
    }

    /// Divides the shares of value files with another tablet: each keeps a share in proportion to the bytes it refers to,
    /// of which `whole` had all.
    pub(crate) fn keep_share_of(&mut self, whole: &Manifest) {
        let (all, own) = (whole.live_values(), self.live_values());
        for link in self
            .groups
            .iter_mut()
            .flat_map(|g| &mut g.files)
            .flat_map(|f| &mut f.values)
        {
            let (own, all) = (own.get(&link.file).copied(), all.get(&link.file).copied());
            if let (Some(own), Some(all)) = (own, all.filter(|all| *all > 0)) {
                let share = u128::from(link.share) * u128::from(own.min(all)) / u128::from(all);
                link.share = u64::try_from(share).unwrap_or(link.share);
            }
        }
    }

    /// Bytes of value files that are referred to, by file.
    fn live_values(&self) -> BTreeMap<u64, u64> {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for link in self.all_files().flat_map(|file| &file.values) {
            *live.entry(link.file).or_default() += link.bytes;
        }
        live
    }

    /// The oldest version that has all of its parts. A program that does not know value files or request tokens must not take
    /// this for a manifest it understands.
    fn version(&self) -> u32 {
        let names_values = || self.all_files().any(|file| !file.values.is_empty());
        match self.request_tokens {
            Some(_) => VERSION,
            None if names_values() => VERSION_WITHOUT_TOKENS,
            None => VERSION_WITHOUT_VALUES,
        }
    }

    /// Encodes with header and checksum.
    pub fn encode_file(&self) -> Bytes {
        KIND.encode(self.version(), &self.encode_to_vec())
    }

    /// Decodes a whole file; `path` is for errors.
    pub fn decode_file(path: &str, bytes: &[u8]) -> Result<Manifest> {
        KIND.decode(path, bytes, |payload| Manifest::decode(payload))
    }
}

/// The directory of a tablet's manifests.
pub fn directory(tablet: TabletId) -> String {
    format!("tablets/{:016x}/", tablet.0)
}

/// The path of one version.
pub fn path(tablet: TabletId, number: u64) -> String {
    format!("{}manifest-{number:016x}", directory(tablet))
}

/// The tablet and version number of a manifest's path. Accepts only paths that [`path`] makes: no capital digits, no
/// signs.
pub fn parse_path(text: &str) -> Option<(TabletId, u64)> {
    let (tablet, file) = text.strip_prefix("tablets/")?.split_once('/')?;
    let number = u64::from_str_radix(file.strip_prefix("manifest-")?, 16).ok()?;
    let tablet = TabletId(u64::from_str_radix(tablet, 16).ok()?);
    (path(tablet, number) == text).then_some((tablet, number))
}

/// Writes the versions of one tablet. Used by one task at a time.
pub struct ManifestLog {
    storage: Arc<dyn Storage>,
    tablet: TabletId,
    /// Number of the newest version known to exist.
    number: u64,
    /// Versions to delete once a newer one is durable.
    stale: Vec<u64>,
}

/// An earlier attempt to claim a tablet under the same epoch.
enum Earlier {
    /// There was none.
    None,
    /// There may have been one, of the same owner.
    Possible,
    /// The last one failed so, and may have succeeded all the same.
    Failed(StorageError),
}

impl Earlier {
    fn failure(self) -> Option<StorageError> {
        match self {
            Earlier::Failed(error) => Some(error),
            Earlier::None | Earlier::Possible => None,
        }
    }
}

/// Attempts at one commit when storage fails.
const ATTEMPTS: usize = 3;

/// How often an owner that still works may get ahead of the next one, or delete a version that it is about to read. Each
/// time is a flush or a compaction of one tablet in the milliseconds between a listing and a put.
const RACES_MAX: usize = 100;

impl ManifestLog {
    /// Makes the first version of a new tablet.
    pub async fn create(storage: Arc<dyn Storage>, manifest: &Manifest) -> Result<ManifestLog> {
        let mut log = ManifestLog {
            storage,
            tablet: manifest.tablet(),
            number: 0,
            stale: Vec::new(),
        };
        log.commit(manifest).await?;
        Ok(log)
    }

    /// Reads the newest version.
    pub async fn open(storage: Arc<dyn Storage>, tablet: TabletId) -> Result<(ManifestLog, Manifest)> {
        for _ in 0..RACES_MAX {
            let numbers = numbers(&*storage, tablet).await?;
            if numbers.is_empty() {
                return Err(StorageError::NotFound { path: path(tablet, 1) }.into());
            }
            // Or its owner made a newer one meanwhile.
            if let Some(opened) = Self::read(&storage, tablet, numbers).await? {
                return Ok(opened);
            }
        }
        Err(contended(tablet, "open"))
    }

    /// Reads the newest of the versions that a listing showed; `None` when it is not there.
    async fn read(
        storage: &Arc<dyn Storage>,
        tablet: TabletId,
        mut numbers: Vec<u64>,
    ) -> Result<Option<(ManifestLog, Manifest)>> {
        // A listing is sorted. A storage that fails in this must not make a version that counts seem superseded.
        numbers.sort_unstable();
        numbers.dedup();
        let Some(number) = numbers.pop() else {
            return Ok(None);
        };
        let newest = path(tablet, number);
        let content = match storage.read_all(&newest).await {
            Err(StorageError::NotFound { .. }) => return Ok(None),
            content => content?,
        };
        let manifest = Manifest::decode_file(&newest, &content)?;
        if manifest.tablet() != tablet {
            let detail = format!("describes tablet {}", manifest.tablet());
            return Err(TabletError::Corruption {
                path: Arc::from(newest),
                detail,
            });
        }
        let log = ManifestLog {
            storage: storage.clone(),
            tablet,
            number,
            stale: numbers,
        };
        Ok(Some((log, manifest)))
    }

    /// Takes the tablet over: reads the newest version and makes one like it under a new epoch right after it. Earlier
    /// commits of the former owner count; at its next commit it learns that it has been replaced.
    pub async fn claim(
        storage: Arc<dyn Storage>,
        tablet: TabletId,
        epoch: Epoch,
        now_micros: i64,
    ) -> Result<(ManifestLog, Manifest)> {
        Self::claim_after(storage, (tablet, epoch), now_micros, Earlier::None).await
    }

    /// The same for an owner that may have claimed the tablet already, in an attempt to open it that failed. No other owner
    /// of this epoch has it open.
    pub async fn claim_again(
        storage: Arc<dyn Storage>,
        tablet: TabletId,
        epoch: Epoch,
        now_micros: i64,
    ) -> Result<(ManifestLog, Manifest)> {
        Self::claim_after(storage, (tablet, epoch), now_micros, Earlier::Possible).await
    }

    /// The same as [`ManifestLog::claim`] with the versions that a listing showed, for an owner that takes over many
    /// tablets: two requests. The caller checks by another listing whether the new version is the newest before it relies
    /// on it ([`ManifestLog::check_newest`]).
    pub async fn claim_listed(
        storage: Arc<dyn Storage>,
        tablet: TabletId,
        epoch: Epoch,
        now_micros: i64,
        listed: Vec<u64>,
    ) -> Result<(ManifestLog, Manifest)> {
        let mut earlier = Earlier::None;
        if let Some((mut log, mut manifest)) = Self::read(&storage, tablet, listed).await?
            && Epoch(manifest.epoch) < epoch
        {
            manifest.epoch = epoch.0;
            manifest.written_micros = now_micros;
            let number = log.number + 1;
            let next = path(tablet, number);
            match storage.put_if_absent(&next, manifest.encode_file()).await {
                Ok(()) => {
                    log.advance(number);
                    return Ok((log, manifest));
                }
                Err(StorageError::AlreadyExists { .. }) => {}
                Err(error @ StorageError::NoSpace { .. }) => return Err(error.into()),
                Err(error) => earlier = Earlier::Failed(error),
            }
        }
        // It has changed since the listing.
        Self::claim_after(storage, (tablet, epoch), now_micros, earlier).await
    }

    /// Claims the tablet, perhaps after earlier attempts.
    async fn claim_after(
        storage: Arc<dyn Storage>,
        (tablet, epoch): (TabletId, Epoch),
        now_micros: i64,
        mut earlier: Earlier,
    ) -> Result<(ManifestLog, Manifest)> {
        let mut attempts = usize::from(matches!(earlier, Earlier::Failed(_)));
        for _ in 0..RACES_MAX {
            let (mut log, mut manifest) = Self::open(storage.clone(), tablet).await?;
            if !matches!(earlier, Earlier::None) && Epoch(manifest.epoch) == epoch {
                // Nobody else has this epoch: an attempt that seemed to fail did not.
                log.sync(log.number).await?;
                return Ok((log, manifest));
            }
            if Epoch(manifest.epoch) >= epoch {
                return Err(TabletError::Fenced { tablet });
            }
            manifest.epoch = epoch.0;
            manifest.written_micros = now_micros;
            let number = log.number + 1;
            match storage
                .put_if_absent(&path(tablet, number), manifest.encode_file())
                .await
            {
                Ok(()) => {
                    log.take_effect(number).await?;
                    return Ok((log, manifest));
                }
                // The former owner was faster, or it is ours: its content decides.
                Err(StorageError::AlreadyExists { .. }) => {}
                Err(error @ StorageError::NoSpace { .. }) => return Err(earlier.failure().unwrap_or(error).into()),
                Err(error) => {
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        return Err(error.into());
                    }
                    earlier = Earlier::Failed(error);
                }
            }
        }
        Err(contended(tablet, "claim"))
    }

    /// The newest version, for a new owner that knows that it is durable and that no former owner is left. Its epoch is
    /// written with its first commit. `listed` are the versions that a listing showed.
    pub async fn inherit(
        storage: Arc<dyn Storage>,
        tablet: TabletId,
        epoch: Epoch,
        listed: Vec<u64>,
    ) -> Result<(ManifestLog, Manifest)> {
        let Some((log, mut manifest)) = Self::read(&storage, tablet, listed).await? else {
            return Err(StorageError::NotFound { path: path(tablet, 1) }.into());
        };
        if Epoch(manifest.epoch) >= epoch {
            return Err(TabletError::Fenced { tablet });
        }
        manifest.epoch = epoch.0;
        Ok((log, manifest))
    }

    /// Makes `manifest` the newest version. After `NoSpace` and `ManifestTooLarge` the old one still is. After any other
    /// error the old one or the new one may be the newest in storage, so the files of both must stay. A later commit
    /// settles it, unless the error was `Fenced`, after which this owner may do nothing any more.
    pub async fn commit(&mut self, manifest: &Manifest) -> Result<()> {
        check_size(self.tablet, manifest.encoded_len(), BYTES_MAX - CLAIM_BYTES)?;
        let content = manifest.encode_file();
        let mut failure = None;
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            let number = self.number + 1;
            match self
                .storage
                .put_if_absent(&path(self.tablet, number), content.clone())
                .await
            {
                Ok(()) => return self.take_effect_of_owner(number).await,
                Err(StorageError::AlreadyExists { .. }) => {
                    let is_this = self.read_own(number, manifest).await? == content;
                    // It exists, but the attempt that failed may have failed to make its name durable.
                    if let Err(error) = self.sync(number).await {
                        attempts += 1;
                        failure = Some(error);
                        continue;
                    }
                    if is_this {
                        // An attempt that seemed to fail did not.
                        return self.take_effect_of_owner(number).await;
                    }
                    // Of an earlier commit that seemed to fail, or of an even older owner.
                    self.advance(number);
                }
                // After an attempt of unknown outcome the whole is unknown.
                Err(error @ StorageError::NoSpace { .. }) => return Err(failure.unwrap_or(error).into()),
                Err(error) => {
                    // Whether it exists now is unknown. The number must not be passed before that is known.
                    attempts += 1;
                    failure = Some(error);
                }
            }
        }
        Err(failure.map_or(TabletError::Fenced { tablet: self.tablet }, TabletError::from))
    }

    /// Makes an existing version durable. `NoSpace` of a commit would say that the version does not exist, and its files
    /// would be deleted.
    async fn sync(&self, number: u64) -> std::result::Result<(), StorageError> {
        let synced = self.storage.sync_file(&path(self.tablet, number)).await;
        synced.map_err(|error| match error {
            StorageError::NoSpace { path } => StorageError::Io {
                path,
                operation: "sync",
                message: "no space left to make it durable".to_owned(),
            },
            error => error,
        })
    }

    fn advance(&mut self, number: u64) {
        assert_eq!(
            number,
            self.number + 1,
            "versions of a manifest are numbered without gaps"
        );
        self.stale.push(self.number);
        self.number = number;
    }

    /// A version exists by which files become obsolete: it counts if there was no other owner yet when it was there.
    async fn take_effect_of_owner(&mut self, number: u64) -> Result<()> {
        match self.storage.confirm_owner().await {
            Err(StorageError::Fenced { .. }) => return Err(TabletError::Fenced { tablet: self.tablet }),
            confirmed => confirmed?,
        }
        self.take_effect(number).await
    }

    /// A version of ours exists: unless it is the newest we have been replaced.
    async fn take_effect(&mut self, number: u64) -> Result<()> {
        let newest = numbers(&*self.storage, self.tablet).await?.pop();
        if newest != Some(number) {
            return Err(TabletError::Fenced { tablet: self.tablet });
        }
        self.advance(number);
        self.delete_stale().await;
        Ok(())
    }

    /// The version that took our next number. Ours, from an attempt that seemed to fail, or a newer owner's.
    async fn read_own(&self, number: u64, ours: &Manifest) -> Result<Bytes> {
        let taken = path(self.tablet, number);
        let fenced = TabletError::Fenced { tablet: self.tablet };
        let content = match self.storage.read_all(&taken).await {
            // We did not delete it.
            Err(StorageError::NotFound { .. }) => return Err(fenced),
            content => content?,
        };
        let theirs = Manifest::decode_file(&taken, &content)?;
        if Epoch(theirs.epoch) > Epoch(ours.epoch) {
            return Err(fenced);
        }
        Ok(content)
    }

    /// Whether the newest version of a listing is the one this made, or read: else somebody else has the tablet.
    pub fn check_newest(&self, listed: &[u64]) -> Result<()> {
        match listed.iter().max() == Some(&self.number) {
            true => Ok(()),
            false => Err(TabletError::Fenced { tablet: self.tablet }),
        }
    }

    /// The same with a listing of now.
    pub async fn check_claim(&self) -> Result<()> {
        self.check_newest(&numbers(&*self.storage, self.tablet).await?)
    }

    /// The versions that are superseded and not deleted yet, for the caller to discard. It has seen that the newest is, and
    /// that it is the owner.
    pub fn take_stale(&mut self) -> Vec<String> {
        assert!(
            self.stale.iter().all(|number| *number < self.number),
            "the newest version is never discarded"
        );
        let stale = std::mem::take(&mut self.stale).into_iter();
        let stale = stale.filter(|number| *number > 0);
        stale.map(|number| path(self.tablet, number)).collect()
    }

    async fn delete_stale(&mut self) {
        assert!(
            self.stale.iter().all(|number| *number < self.number),
            "the newest version is never discarded"
        );
        let mut kept = Vec::new();
        for number in std::mem::take(&mut self.stale) {
            // A leftover does no harm, also when power loss brings it back: only the newest counts.
            if number > 0 && self.storage.discard(&path(self.tablet, number)).await.is_err() {
                kept.push(number);
            }
        }
        self.stale = kept;
    }
}

/// The numbers of all versions of every tablet, ascending.
pub async fn list_all(storage: &dyn Storage) -> std::result::Result<BTreeMap<TabletId, Vec<u64>>, StorageError> {
    let mut all: BTreeMap<TabletId, Vec<u64>> = BTreeMap::new();
    // By path, and so by number.
    for file in storage.list("tablets/").await? {
        if let Some((tablet, number)) = parse_path(&file.path) {
            all.entry(tablet).or_default().push(number);
        }
    }
    Ok(all)
}

/// The numbers of all versions, ascending.
async fn numbers(storage: &dyn Storage, tablet: TabletId) -> Result<Vec<u64>> {
    let files = storage.list(&directory(tablet)).await?;
    let mut numbers: Vec<u64> = files
        .iter()
        .filter_map(|f| parse_path(&f.path))
        .map(|(_, n)| n)
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Refuses to drop rows of a tablet when the bytes of its references would grow beyond their share.
pub(crate) fn check_cut(tablet: TabletId, before: usize, after: usize) -> Result<()> {
    check_size(tablet, after, CUT_BYTES_MAX.max(before))
}

fn check_size(tablet: TabletId, bytes: usize, limit: usize) -> Result<()> {
    match bytes <= limit {
        true => Ok(()),
        false => Err(TabletError::ManifestTooLarge { tablet, bytes, limit }),
    }
}

fn contended(tablet: TabletId, operation: &'static str) -> TabletError {
    TabletError::Storage(StorageError::Io {
        path: directory(tablet),
        operation,
        message: format!("another owner got ahead {RACES_MAX} times"),
    })
}

/// Prints a manifest.
pub fn inspect(path: &str, bytes: &[u8]) -> Result<String> {
    let mut manifest = Manifest::decode_file(path, bytes)?;
    let tokens = manifest.request_tokens.take();
    let tokens = tokens.map(|tokens| tokens.inspect()).unwrap_or_default();
    Ok(format!("{manifest:#?}\n{tokens}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use stele_storage::memory::MemoryStorage;
    use stele_storage::{FileInfo, ReadFile};
    use stele_types::ErrorKind;

    /// Counts requests. A put of an earlier attempt may arrive just before the next one.
    struct Watched {
        inner: Arc<MemoryStorage>,
        lists: AtomicU64,
        reads: AtomicU64,
        late: Mutex<Option<(String, Bytes)>>,
    }

    #[async_trait::async_trait]
    impl stele_storage::Layer for Watched {
        fn below(&self) -> &dyn Storage {
            &*self.inner
        }

        async fn open(&self, path: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.inner.open(path).await
        }

        async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
            let late = self.late.lock().take();
            if let Some((path, content)) = late {
                self.inner.put_if_absent(&path, content).await?;
            }
            self.inner.put_if_absent(path, content).await
        }

        async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
            self.lists.fetch_add(1, Ordering::Relaxed);
            self.inner.list(prefix).await
        }
    }

    /// A tablet of epoch 1 in such a storage.
    async fn watched() -> (Arc<Watched>, Manifest) {
        let storage = Arc::new(Watched {
            inner: MemoryStorage::new(),
            lists: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            late: Mutex::default(),
        });
        let first = Manifest {
            tablet: 1,
            table: 1,
            epoch: 1,
            ..Manifest::default()
        };
        ManifestLog::create(storage.inner.clone(), &first).await.unwrap();
        (storage, first)
    }

    /// Rows wait for it after a failure.
    #[tokio::test]
    async fn a_claim_reads_the_newest_version_once() {
        let (storage, _) = watched().await;
        let claim = || ManifestLog::claim_again(storage.clone(), TabletId(1), Epoch(2), 7);
        let requests = || {
            let lists = storage.lists.swap(0, Ordering::Relaxed);
            (lists, storage.reads.swap(0, Ordering::Relaxed))
        };
        let (log, manifest) = claim().await.unwrap();
        assert_eq!((log.number, manifest.epoch), (2, 2));
        assert_eq!(requests(), (2, 1), "one listing before the put and one behind it");
        let (log, _) = claim().await.unwrap();
        assert_eq!(log.number, 2, "it was claimed already");
        assert_eq!(requests(), (1, 1));
        let older = ManifestLog::claim_again(storage.clone(), TabletId(1), Epoch(1), 7).await;
        assert!(matches!(older, Err(TabletError::Fenced { .. })));
    }

    /// The attempt seemed to fail. Its put arrives when the next attempt has read the version before.
    #[tokio::test]
    async fn a_claim_of_an_earlier_attempt_that_arrives_late_is_ones_own() {
        let (storage, first) = watched().await;
        let earlier = Manifest { epoch: 2, ..first };
        *storage.late.lock() = Some((path(TabletId(1), 2), earlier.encode_file()));
        let claimed = ManifestLog::claim_again(storage.clone(), TabletId(1), Epoch(2), 7).await;
        let (log, manifest) = claimed.unwrap();
        assert_eq!((log.number, manifest.epoch), (2, 2));
    }

    /// The former owner commits when the next one has read the version before.
    #[tokio::test]
    async fn a_claim_begins_from_the_last_commit_of_the_former_owner() {
        let (storage, first) = watched().await;
        let commit = Manifest {
            flushed_through: 5,
            ..first
        };
        *storage.late.lock() = Some((path(TabletId(1), 2), commit.encode_file()));
        let claimed = ManifestLog::claim_again(storage.clone(), TabletId(1), Epoch(2), 7).await;
        let (log, manifest) = claimed.unwrap();
        assert_eq!((log.number, manifest.epoch, manifest.flushed_through), (3, 2, 5));
    }

    /// After the next start the tablet would be a damaged one.
    #[tokio::test]
    async fn what_could_not_be_read_back_is_not_written() {
        let storage = MemoryStorage::new();
        let mut manifest = Manifest {
            tablet: 1,
            table: 1,
            epoch: 1,
            ..Manifest::default()
        };
        let mut log = ManifestLog::create(storage.clone(), &manifest).await.unwrap();
        let bound = Bytes::from(vec![b'r'; 32 << 10]);
        let part = FileRef {
            file: 7,
            lower: Some(bound.clone()),
            upper: Some(bound),
            ..FileRef::default()
        };
        let too_many = BYTES_MAX / (64 << 10);
        manifest.set_files(GroupId(0), vec![part.clone(); too_many]);
        let refused = log.commit(&manifest).await.unwrap_err();
        assert!(matches!(refused, TabletError::ManifestTooLarge { .. }), "{refused}");
        assert_eq!(refused.kind(), ErrorKind::ResourceExhausted);
        for files in [0, too_many - 1] {
            let (_, newest) = ManifestLog::open(storage.clone(), TabletId(1)).await.unwrap();
            assert_eq!(newest.all_files().count(), files);
            manifest.set_files(GroupId(0), vec![part.clone(); too_many - 1]);
            log.commit(&manifest).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_version_counts_by_its_number_wherever_a_listing_shows_it() {
        let storage = MemoryStorage::new();
        let mut manifest = Manifest {
            tablet: 1,
            table: 1,
            ..Manifest::default()
        };
        for number in [1, 3] {
            manifest.flushed_through = number;
            let content = manifest.encode_file();
            storage
                .put_if_absent(&path(TabletId(1), number), content)
                .await
                .unwrap();
        }
        let listed = vec![3, 1, 3];
        let inherited = ManifestLog::inherit(storage, TabletId(1), Epoch(1), listed.clone());
        let (mut log, newest) = inherited.await.unwrap();
        assert_eq!(newest.flushed_through, 3);
        log.check_newest(&listed).unwrap();
        log.check_newest(&[3, 4, 1]).unwrap_err();
        assert_eq!(log.take_stale(), [path(TabletId(1), 1)]);
    }

    #[test]
    fn drops_of_rows_leave_space_for_flushes() {
        let check = |before, after| check_cut(TabletId(1), before, after).is_ok();
        assert!(check(0, CUT_BYTES_MAX) && !check(0, CUT_BYTES_MAX + 1));
        assert!(
            check(BYTES_MAX - 1, BYTES_MAX - 1),
            "what makes it no larger is no matter"
        );
    }

    #[test]
    fn paths_have_one_spelling() {
        let manifest = path(TabletId(0xab), 0xcd);
        assert_eq!(parse_path(&manifest), Some((TabletId(0xab), 0xcd)));
        let sstable = FileRef::path(FileId(0xab));
        assert_eq!(FileRef::parse_path(&sstable), Some(FileId(0xab)));
        for (digits, other) in [
            ("ab", "AB"),
            ("00ab", "+0ab"),
            ("00ab", "0ab"),
            ("00ab", "000ab"),
            ("00cd", "+0cd"),
        ] {
            let (manifest, sstable) = (manifest.replace(digits, other), sstable.replace(digits, other));
            assert_eq!(parse_path(&manifest), None, "{manifest}");
            assert!(digits == "00cd" || FileRef::parse_path(&sstable).is_none(), "{sstable}");
        }
    }
}

//! Bulk loads of files that HBase has written, into a service in memory.

use super::*;
use crate::test_service::{Client, Model, failure, message};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::Ordering;
use stele_memory::{Part, Pool};
use stele_storage::foreign::{ForeignFiles, ForeignRoot, below};
use stele_storage::{ReadFile, StorageError};
use stele_types::{FamilyId, Mutation, Timestamp};
use stele_wire::exception;
use stele_wire::frame::Response;

/// The cells of its family `cf` in place of `info`, so that the model's table has it.
const FILE: &[u8] = include_bytes!("../../../hfile/testdata/info.hfile");
const EMPTY: &[u8] = include_bytes!("../../../hfile/testdata/empty.hfile");
const OTHER_FAMILY: &[u8] = include_bytes!("../../../hfile/testdata/fast_diff.hfile");

/// Counts the files that are open.
#[derive(Default)]
struct Samples(Arc<()>);

struct Counted {
    file: Arc<dyn ReadFile>,
    _is_open: Arc<()>,
}

#[async_trait]
impl ReadFile for Counted {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.file.read_at(offset, len).await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<stele_storage::Result<Bytes>> {
        self.file.try_read_at(offset, len)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        self.file.path()
    }
}

#[async_trait]
impl ForeignRoot for Samples {
    fn path_of<'u>(&self, url: &'u str) -> Option<&'u str> {
        below(url, "stage", |scheme, _| scheme == "file")
    }

    async fn open(&self, path: &str, url: &str) -> stele_storage::Result<Arc<dyn ReadFile>> {
        let bytes = match path {
            "file" => Bytes::from_static(FILE),
            "empty" => Bytes::from_static(EMPTY),
            "other" => Bytes::from_static(OTHER_FAMILY),
            "damaged" => {
                let mut bytes = FILE.to_vec();
                bytes[40] ^= 1;
                bytes.into()
            }
            _ => return Err(StorageError::NotFound { path: url.to_owned() }),
        };
        Ok(Arc::new(Counted {
            file: stele_hfile::fuzzing::file(bytes),
            _is_open: Arc::clone(&self.0),
        }))
    }
}

fn model(starts: &[&str]) -> Arc<Model> {
    let model = Model::new(starts);
    *model.files.lock() = ForeignFiles::new(vec![Arc::<Samples>::default()]);
    model
}

async fn client(model: &Arc<Model>) -> Client {
    let front_end = model.front_end(&Pool::default());
    Client::connect(&front_end, 64 << 10, None).await.0
}

fn request(model: &Model, row: &str, files: &[(&str, &str)]) -> BulkLoadHFileRequest {
    let file = |(family, name): &(&str, &str)| FamilyPath {
        family: Bytes::copy_from_slice(family.as_bytes()),
        path: format!("file:/stage/{name}"),
    };
    BulkLoadHFileRequest {
        region: model.region(row),
        family_path: files.iter().map(file).collect(),
        assign_seq_num: Some(true),
        bulk_token: Some("load".into()),
        ..BulkLoadHFileRequest::default()
    }
}

/// The text of the exception of a call that failed.
fn trace(response: &Response) -> String {
    let exception = response.header.exception.clone();
    exception
        .and_then(|exception| exception.stack_trace)
        .unwrap_or_default()
}

async fn is_loaded(client: &mut Client, request: &BulkLoadHFileRequest) -> bool {
    let response = client.call("BulkLoadHFile", request).await;
    message::<BulkLoadHFileResponse>(&response).loaded
}

#[tokio::test]
async fn a_file_becomes_cells_of_its_region() {
    let model = model(&[""]);
    let mut client = client(&model).await;
    let prepared = client
        .call(
            "PrepareBulkLoad",
            &PrepareBulkLoadRequest {
                table_name: crate::names::to_message(&model.schema.name),
                region: Some(model.region("")),
            },
        )
        .await;
    let token = message::<PrepareBulkLoadResponse>(&prepared).bulk_token;
    assert_eq!(token.len(), 32);
    let files = [("info", "file"), ("info", "empty")];
    assert!(is_loaded(&mut client, &request(&model, "", &files)).await);
    assert!(is_loaded(&mut client, &request(&model, "", &files)).await);
    let loads = std::mem::take(&mut *model.loads.lock());
    let tokens: Vec<_> = loads.iter().map(|(_, token, _)| token.clone().unwrap()).collect();
    assert!(tokens[0] != tokens[1] && tokens[..2] == tokens[2..], "{tokens:?}");
    let (family, _, cells) = &loads[0];
    assert_eq!((*family, cells.len()), (FamilyId(1), 130));
    let (row, first) = &cells[0];
    let expected = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"a"),
        timestamp: Timestamp(1_000_000),
        value: Bytes::from_static(b"value 0"),
    };
    assert_eq!((&row[..], first), (&b"row-0000"[..], &expected));
    assert!(loads[1].2.is_empty());
    let ended = client
        .call(
            "CleanupBulkLoad",
            &CleanupBulkLoadRequest {
                bulk_token: token,
                region: None,
            },
        )
        .await;
    message::<Empty>(&ended);
}

#[tokio::test]
async fn a_file_of_several_regions_is_not_loaded() {
    let model = model(&["", "row-0021"]);
    let mut client = client(&model).await;
    for row in ["", "row-0021"] {
        assert!(!is_loaded(&mut client, &request(&model, row, &[("info", "file")])).await);
    }
    assert!(model.loads.lock().is_empty());
}

#[tokio::test]
async fn a_load_that_came_from_here_is_not_repeated() {
    let model = model(&[""]);
    let mut client = client(&model).await;
    let mut request = request(&model, "", &[("info", "file")]);
    request.cluster_ids = vec!["other".into(), "c".into()];
    assert!(is_loaded(&mut client, &request).await);
    assert!(model.loads.lock().is_empty());
}

#[tokio::test]
async fn what_cannot_be_loaded_is_named() {
    let model = model(&[""]);
    let mut client = client(&model).await;
    let mut outside = request(&model, "", &[("info", "file")]);
    outside.family_path[0].path = "file:/stage/../etc/file".into();
    let mut meta = request(&model, "", &[("info", "file")]);
    meta.region.value = Bytes::from_static(b"hbase:meta,,1");
    for (request, class, text) in [
        (
            request(&model, "", &[("nothing", "file")]),
            exception::NO_SUCH_FAMILY,
            "nothing",
        ),
        (
            request(&model, "", &[("info", "missing")]),
            exception::DO_NOT_RETRY,
            "file:/stage/missing: no such file",
        ),
        (
            request(&model, "", &[("info", "damaged")]),
            exception::DO_NOT_RETRY,
            "damaged at offset 0: checksum 0",
        ),
        (
            request(&model, "", &[("info", "other")]),
            exception::DO_NOT_RETRY,
            "Column family cf",
        ),
        (outside, exception::DO_NOT_RETRY, "--bulk-load-root"),
        (meta, exception::DO_NOT_RETRY, "hbase:meta"),
    ] {
        let response = client.call("BulkLoadHFile", &request).await;
        assert_eq!(failure(&response), class);
        let trace = trace(&response);
        assert!(trace.contains(text), "{trace}");
    }
    assert!(model.loads.lock().is_empty());
}

#[tokio::test]
async fn without_a_setting_no_load_is_served() {
    let model = Model::new(&[""]);
    let mut client = client(&model).await;
    let prepare = PrepareBulkLoadRequest {
        table_name: crate::names::to_message(&model.schema.name),
        region: Some(model.region("")),
    };
    let prepared = client.call("PrepareBulkLoad", &prepare).await;
    let loaded = client
        .call("BulkLoadHFile", &request(&model, "", &[("info", "file")]))
        .await;
    for response in [prepared, loaded] {
        assert_eq!(failure(&response), exception::DO_NOT_RETRY);
        let trace = trace(&response);
        assert!(
            trace.contains("bulk loads are off") && trace.contains("bulk_load_root"),
            "{trace}"
        );
    }
}

/// The memory of a load is that of requests, and is given back.
#[tokio::test]
async fn a_load_without_memory_is_to_be_repeated() {
    let model = model(&[""]);
    let pool = Pool::default().limited(Part::Requests, 60_000);
    let front_end = model.front_end(&pool);
    let mut client = Client::connect(&front_end, 64 << 10, None).await.0;
    let response = client
        .call("BulkLoadHFile", &request(&model, "", &[("info", "file")]))
        .await;
    assert_eq!(failure(&response), exception::REGION_TOO_BUSY);
}

/// Loads wait for their turn at the tablet, and each may have a thousand files.
#[tokio::test]
async fn a_load_that_waits_has_no_open_files_and_no_memory_of_blocks() {
    let (model, open) = (Model::new(&[""]), Arc::new(()));
    *model.files.lock() = ForeignFiles::new(vec![Arc::new(Samples(Arc::clone(&open)))]);
    let pool = Pool::default();
    let front_end = model.front_end(&pool);
    let turn = model.latch.lock().await;
    let mut clients = Vec::new();
    for number in 1..=10 {
        let (mut client, served) = Client::connect(&front_end, 64 << 10, None).await;
        let files = [("info", "file"); 20];
        client.send("BulkLoadHFile", &request(&model, "", &files), &()).await;
        while model.loads_begun.load(Ordering::Relaxed) < number {
            tokio::task::yield_now().await;
        }
        clients.push((client, served));
    }
    assert_eq!(Arc::strong_count(&open), 2, "this one, and that of the root");
    let used = pool.of(Part::Requests).used();
    assert!(used < 10 * 64 * 1024, "{used} bytes for ten requests");
    drop(turn);
    for (client, _) in &mut clients {
        let response = client.response().await;
        assert!(message::<BulkLoadHFileResponse>(&response).loaded);
    }
    assert_eq!(model.loads.lock().len(), 10 * 20);
}

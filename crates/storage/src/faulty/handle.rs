//! Open files of the simulated device.

use super::device::{Device, SharedFile, chance};
use super::{FaultPlan, Mount, injected};
use crate::writer::WriterLife;
use crate::{AppendFile, ReadFile, Result, check_range};
use async_trait::async_trait;
use bytes::Bytes;

pub(super) struct FaultyAppend {
    mount: Mount,
    path: String,
    file: SharedFile,
    life: WriterLife,
    len: u64,
}

impl FaultyAppend {
    pub(super) fn new(mount: Mount, path: &str, file: SharedFile) -> Self {
        FaultyAppend {
            mount,
            path: path.to_owned(),
            file,
            life: WriterLife::new(),
            len: 0,
        }
    }

    fn append_now(&mut self, slices: &[Bytes]) -> Result<()> {
        self.life.begin_append(&self.path)?;
        let mut device = self.mount.enter(&self.path, "append")?;
        device.append(self.mount.env(), &self.path, &self.file, slices)?;
        self.len += slices.iter().map(|s| s.len() as u64).sum::<u64>();
        self.life.succeeded();
        Ok(())
    }
}

#[async_trait]
impl AppendFile for FaultyAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.append_now(slices)
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<Result<()>> {
        let waits = match self.mount.enter(&self.path, "append") {
            Ok(device) => device.plan.append_wait,
            Err(error) => return Some(Err(error)),
        };
        if chance(self.mount.env(), waits) {
            return None;
        }
        let slices: Vec<Bytes> = slices.iter().map(|slice| Bytes::copy_from_slice(slice)).collect();
        Some(self.append_now(&slices))
    }

    async fn sync(&mut self) -> Result<()> {
        self.life.begin_sync(&self.path)?;
        let (env, path, file) = (self.mount.env(), &self.path, &self.file);
        self.mount
            .run(path, "sync", |device| device.sync(env, path, file))
            .await?;
        self.life.succeeded();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

pub(super) struct FaultyRead {
    mount: Mount,
    path: String,
    file: SharedFile,
    len: u64,
}

impl FaultyRead {
    pub(super) fn new(mount: Mount, path: &str, file: SharedFile) -> Self {
        let len = file.lock().content.len() as u64;
        FaultyRead {
            mount,
            path: path.to_owned(),
            file,
            len,
        }
    }

    fn slice(&self, offset: u64, len: usize) -> Result<Bytes> {
        check_range(&self.path, offset, len, self.len)?;
        let content = self.file.lock().content.shared();
        // A failed sync may have cut the file since it was opened.
        check_range(&self.path, offset, len, content.len() as u64)?;
        Ok(content.slice(offset as usize..offset as usize + len))
    }
}

#[async_trait]
impl ReadFile for FaultyRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        let read = |device: &mut Device| {
            device.counts.reads += 1;
            if device.draw_fault(self.mount.env(), device.plan.read_error) {
                return Err(injected(&self.path, "read"));
            }
            device.check_readable(&self.path, offset, len)?;
            self.slice(offset, len)
        };
        self.mount.run(&self.path, "read", read).await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        let mut device = match self.mount.enter(&self.path, "read") {
            Ok(device) => device,
            Err(error) => return Some(Err(error)),
        };
        let FaultPlan {
            read_miss, read_error, ..
        } = device.plan;
        // Bytes that the device cannot read are in no page cache.
        if chance(self.mount.env(), read_miss) || device.check_readable(&self.path, offset, len).is_err() {
            return None;
        }
        device.counts.reads += 1;
        if device.draw_fault(self.mount.env(), read_error) {
            return Some(Err(injected(&self.path, "read")));
        }
        Some(self.slice(offset, len))
    }

    fn reads_from_memory(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &str {
        &self.path
    }
}

//! Serves `GetLogEntries`. The server keeps no such logs of calls and of the balancer, so they are empty.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use stele_wire::messages::{LogEntry, LogRequest};

/// Serves the call, which the master and every region server have.
pub(crate) fn log_entries(call: &Call) -> Outcome<Reply> {
    let request: LogRequest = call.message("LogRequest")?;
    match LogEntry::none_for(&request) {
        Some(none) => call.reply(&none),
        None => Err(Failure::do_not_retry("Invalid request params")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::{Client, Model, failure, message};
    use stele_memory::Pool;
    use stele_wire::exception;
    use stele_wire::messages::{ADMIN_SERVICE, ConnectionHeader, MASTER_SERVICE};

    /// A Java client that cannot read a response ends all calls of the connection. It reads this one only with both fields.
    #[tokio::test]
    async fn an_empty_log_is_an_entry_of_the_wanted_class() {
        let model = Model::new(&[""]);
        let front_end = model.front_end(&Pool::default());
        for service in [MASTER_SERVICE, ADMIN_SERVICE] {
            let header = ConnectionHeader {
                service_name: Some(service.to_owned()),
                ..ConnectionHeader::default()
            };
            let (mut client, _served) = Client::open(&front_end, 1 << 16, &header).await;
            for (request, response) in [
                ("AdminProtos$SlowLogResponseRequest", "AdminProtos$SlowLogResponses"),
                (
                    "MasterProtos$BalancerDecisionsRequest",
                    "MasterProtos$BalancerDecisionsResponse",
                ),
                (
                    "MasterProtos$BalancerRejectionsRequest",
                    "MasterProtos$BalancerRejectionsResponse",
                ),
            ] {
                let package = "org.apache.hadoop.hbase.shaded.protobuf.generated";
                let request = LogRequest {
                    log_class_name: format!("{package}.{request}"),
                    log_message: "\x28\x0a".into(),
                };
                let found = client.call("GetLogEntries", &request).await;
                assert!(!found.message.is_empty(), "required fields are written");
                let found: LogEntry = message(&found);
                assert_eq!(found.log_class_name, format!("{package}.{response}"));
            }
            let other = client.call("GetLogEntries", &LogRequest::default()).await;
            assert_eq!(failure(&other), exception::DO_NOT_RETRY);
        }
    }
}

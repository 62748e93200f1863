//! A table with one family, and a client without a message limit.

use googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2 as admin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::bigtable_client::BigtableClient;
use tonic::transport::{Channel, Endpoint};

/// The name of the table that [`create_table`] creates, with the family `f`.
pub const TABLE: &str = "projects/p/instances/i/tables/t";

/// More than any message of the tests.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

async fn channel(address: &str) -> Channel {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

pub async fn connect(address: &str) -> BigtableClient<Channel> {
    BigtableClient::new(channel(address).await)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

pub async fn create_table(address: &str) {
    let mut client = admin::bigtable_table_admin_client::BigtableTableAdminClient::new(channel(address).await);
    let table = admin::Table {
        column_families: [("f".to_owned(), admin::ColumnFamily::default())].into(),
        ..admin::Table::default()
    };
    let request = admin::CreateTableRequest {
        parent: "projects/p/instances/i".to_owned(),
        table_id: "t".to_owned(),
        table: Some(table),
        ..admin::CreateTableRequest::default()
    };
    client.create_table(request).await.unwrap();
}

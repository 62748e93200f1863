//! The beginning of a connection.
//!
//! It is a preamble with the header of the connection, or one of two short questions.

use super::ConnectionError;
use super::input::Input;
use crate::call::{Client, failed};
use crate::cells::CellPlace;
use crate::compression::BlockCompression;
use crate::failure::Failure;
use crate::front_end::Shared;
use crate::registry;
use crate::services::Service;
use bytes::BytesMut;
use std::future::poll_fn;
use stele_wire::exception;
use stele_wire::frame::{self, PREAMBLE_BYTES, REGISTRY_OPENING, SECURITY_OPENING};
use stele_wire::messages::{
    ConnectionHeader, KEY_VALUE_CODEC, KEY_VALUE_CODEC_WITH_TAGS, NameBytesPair, ResponseHeader,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Number of a response that is for the whole connection: -1.
const CONNECTION_CALL: u32 = u32::MAX;

/// A connection that has begun.
pub(super) struct Opened {
    pub opening: Opening,
    pub service: Service,
    /// The user that the client states.
    pub user: Option<String>,
    /// The bearer token among the attributes of the connection.
    pub token: Option<String>,
}

/// How it began.
pub(super) enum Opening {
    /// Calls follow.
    Calls(Client),
    /// It gets one response, and ends.
    Answered(Answer),
}

/// The only response of a connection.
pub(super) enum Answer {
    ClusterId,
    Failed(Failure),
}

/// Reads the beginning of a connection. `None` if it ends before.
pub(super) async fn open<T: AsyncRead + Unpin>(
    socket: &mut T,
    input: &mut Input,
) -> Result<Option<Opened>, ConnectionError> {
    let answered = |answer| {
        Ok(Some(Opened {
            opening: Opening::Answered(answer),
            service: Service::Registry,
            user: None,
            token: None,
        }))
    };
    loop {
        if input.received.starts_with(REGISTRY_OPENING) {
            return answered(Answer::ClusterId);
        }
        if input.received.starts_with(SECURITY_OPENING) {
            let failure = Failure::new(exception::SECURITY_NOT_ENABLED, "The server does not use Kerberos");
            return answered(Answer::Failed(failure));
        }
        if let Some(failure) = refused_preamble(&input.received) {
            return answered(Answer::Failed(failure));
        }
        match frame::take_preamble(&mut input.received) {
            Ok(Some(header)) => {
                return match accept(&header) {
                    Ok((client, service)) => Ok(Some(Opened {
                        opening: Opening::Calls(client),
                        service,
                        token: token(&header),
                        user: header.user_info.map(|user| user.effective_user),
                    })),
                    Err(failure) => answered(Answer::Failed(failure)),
                };
            }
            Ok(None) => {}
            Err(error) => {
                return answered(Answer::Failed(Failure::new(
                    exception::FATAL_CONNECTION,
                    error.to_string(),
                )));
            }
        }
        if poll_fn(|cx| input.poll_read(socket, cx)).await? == 0 {
            return Ok(None);
        }
    }
}

/// The attribute of a connection with its bearer token, as in a header of HTTP.
const AUTHORIZATION: &str = "authorization";

/// The bearer token of a connection. An attribute that is none is a token that nobody has.
fn token(header: &ConnectionHeader) -> Option<String> {
    let is_meant = |pair: &&NameBytesPair| pair.name.eq_ignore_ascii_case(AUTHORIZATION);
    let value = header
        .attribute
        .iter()
        .find(is_meant)?
        .value
        .as_deref()
        .unwrap_or_default();
    let (scheme, token) = std::str::from_utf8(value)
        .unwrap_or_default()
        .split_once(' ')
        .unwrap_or_default();
    Some(match scheme.eq_ignore_ascii_case("bearer") {
        true => token.trim().to_owned(),
        false => String::new(),
    })
}

/// The error for a preamble that is not served, as soon as it can be told.
fn refused_preamble(received: &[u8]) -> Option<Failure> {
    let opening = received.get(..PREAMBLE_BYTES.min(6))?;
    let (magic, version, authentication) = (opening.get(..4)?, opening.get(4)?, opening.get(5)?);
    if magic != frame::MAGIC {
        let message = format!(
            "Expected HEADER=HBas but received HEADER={} from the client",
            magic.escape_ascii()
        );
        Some(Failure::new(exception::FATAL_CONNECTION, message))
    } else if *version != frame::VERSION {
        let message = format!("Bad version, expecting={} but found={version}", frame::VERSION);
        Some(Failure::new(exception::WRONG_VERSION, message))
    } else if *authentication != frame::AUTH_SIMPLE {
        let message =
            format!("Authentication method {authentication} is not supported; this server has only SIMPLE (80)");
        Some(Failure::new(exception::BAD_AUTH, message))
    } else {
        None
    }
}

/// Checks the header of a connection.
fn accept(header: &ConnectionHeader) -> Result<(Client, Service), Failure> {
    let name = header.service_name.as_deref().unwrap_or_default();
    let service = Service::named(name)
        .ok_or_else(|| Failure::new(exception::UNKNOWN_SERVICE, format!("Unknown service={name}")))?;
    let cells = match header.cell_block_codec_class.as_deref() {
        None | Some("") => CellPlace::Message,
        Some(KEY_VALUE_CODEC | KEY_VALUE_CODEC_WITH_TAGS) => CellPlace::Block,
        Some(other) => {
            return Err(Failure::new(
                exception::UNSUPPORTED_CODEC,
                format!("Unsupported codec {other}"),
            ));
        }
    };
    let compression = BlockCompression::of_class(header.cell_block_compressor_class.as_deref())?;
    let client = Client { cells, compression };
    Ok((client, service))
}

/// Sends the only response of a connection.
pub(super) async fn answer<T: AsyncWrite + Unpin>(
    socket: &mut T,
    shared: &Shared,
    answer: Answer,
) -> Result<(), ConnectionError> {
    let bytes = match answer {
        Answer::ClusterId => {
            let header = ResponseHeader {
                call_id: Some(CONNECTION_CALL),
                ..ResponseHeader::default()
            };
            let mut frame = BytesMut::new();
            frame::encode_response(&mut frame, header, Some(&registry::cluster_id(shared)), &())?;
            frame
        }
        Answer::Failed(failure) => {
            tracing::debug!(class = failure.class, message = %failure.message, "a connection was refused");
            failed(Some(CONNECTION_CALL), &failure).frame
        }
    };
    socket.write_all(&bytes).await?;
    socket.shutdown().await?;
    Ok(())
}

//! Classifies failures of HDFS operations by the reaction they require.
//!
//! NameNodes respond with the name of a Java class and a text. Its first line is for people; the rest is a stack trace.

use hdfs_native::HdfsError;
use std::io::ErrorKind;
use stele_storage::StorageError;

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such file or directory.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A quota is used up.
    NoSpace,
    /// A retry cannot succeed.
    Refused(String),
    /// It did not happen, and may be retried: no NameNode was available.
    Busy(String),
    /// It may have happened or not.
    Unknown(String),
}

/// After these responses the NameNode has done nothing.
const BUSY: [&str; 4] = [
    "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
    "org.apache.hadoop.ipc.RetriableException",
    "org.apache.hadoop.ipc.StandbyException",
    "org.apache.hadoop.ipc.ObserverRetryOnActiveException",
];

const NOT_FOUND: [&str; 2] = [
    "java.io.FileNotFoundException",
    "org.apache.hadoop.fs.ParentNotDirectoryException",
];

const NO_SPACE: [&str; 3] = [
    "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
    "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException",
    "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException",
];

const REFUSED: [&str; 3] = [
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.security.authorize.AuthorizationException",
    "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException",
];

/// Another client has the file under this name, and it is being closed for that client.
const TAKEN: &str = "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException";

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

impl From<HdfsError> for Fault {
    fn from(error: HdfsError) -> Fault {
        match error {
            HdfsError::FileNotFound(_) => Fault::NotFound,
            HdfsError::AlreadyExists(_) => Fault::AlreadyExists,
            HdfsError::RPCError(class, text) | HdfsError::FatalRPCError(class, text) => by_class(&class, &text),
            HdfsError::IOError(error) => match error.kind() {
                ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    Fault::Busy(error.to_string())
                }
                _ => Fault::Unknown(error.to_string()),
            },
            error @ (HdfsError::InvalidPath(_)
            | HdfsError::InvalidArgument(_)
            | HdfsError::UrlParseError(_)
            | HdfsError::IsADirectoryError(_)
            | HdfsError::UnsupportedErasureCodingPolicy(_)
            | HdfsError::UnsupportedFeature(_)
            | HdfsError::SASLError(_)
            | HdfsError::GSSAPIError(..)
            | HdfsError::NoSASLMechanism
            | HdfsError::XmlParseError(_)) => Fault::Refused(first_line(&error.to_string())),
            error => Fault::Unknown(first_line(&error.to_string())),
        }
    }
}

fn by_class(class: &str, text: &str) -> Fault {
    let line = first_line(text);
    // The response for a path below a file.
    if NOT_FOUND.contains(&class) || line.contains("(is not a directory)") {
        return Fault::NotFound;
    }
    let short = class.rsplit('.').next().unwrap_or(class);
    let message = format!("{short}: {line}");
    match class {
        TAKEN => Fault::AlreadyExists,
        class if BUSY.contains(&class) => Fault::Busy(message),
        class if NO_SPACE.contains(&class) => Fault::NoSpace,
        class if REFUSED.contains(&class) => Fault::Refused(message),
        _ => Fault::Unknown(message),
    }
}

impl Fault {
    /// The error in the storage trait's terms.
    pub(crate) fn on(self, path: &str, operation: &'static str) -> StorageError {
        let path = path.to_owned();
        match self {
            Fault::NotFound => StorageError::NotFound { path },
            Fault::AlreadyExists => StorageError::AlreadyExists { path },
            Fault::NoSpace => StorageError::NoSpace { path },
            Fault::Refused(message) | Fault::Busy(message) | Fault::Unknown(message) => StorageError::Io {
                path,
                operation,
                message,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_name_node() {
        let rpc = |class: &str, text: &str| Fault::from(HdfsError::RPCError(class.to_owned(), text.to_owned()));
        let trace = "it is so\n\tat org.apache.hadoop.X.y(X.java:1)";
        assert_eq!(rpc("java.io.FileNotFoundException", trace), Fault::NotFound);
        assert_eq!(rpc(REFUSED[0], "/a/b (is not a directory)\n\tat x"), Fault::NotFound);
        assert_eq!(
            rpc(REFUSED[0], trace),
            Fault::Refused("AccessControlException: it is so".to_owned())
        );
        assert_eq!(
            rpc(BUSY[0], trace),
            Fault::Busy("SafeModeException: it is so".to_owned())
        );
        assert_eq!(
            rpc("java.io.IOException", trace),
            Fault::Unknown("IOException: it is so".to_owned())
        );
        assert_eq!(rpc(NO_SPACE[1], trace), Fault::NoSpace);
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        assert!(matches!(Fault::from(HdfsError::IOError(refused)), Fault::Busy(_)));
        let reset = std::io::Error::from(ErrorKind::ConnectionReset);
        assert!(matches!(Fault::from(HdfsError::IOError(reset)), Fault::Unknown(_)));
    }
}

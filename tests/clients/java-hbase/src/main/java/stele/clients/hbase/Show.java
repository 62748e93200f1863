package stele.clients.hbase;

import com.google.protobuf.ServiceException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.RetriesExhaustedException;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.ipc.RemoteWithExtrasException;
import org.apache.hadoop.hbase.util.Bytes;

/** The canonical text of an observation: the same for every server that behaves the same. */
final class Show {
  /** A timestamp this near to the clock was chosen by the server; cases use numbers far below or above. */
  private static final long NEAR_MS = 30 * 60_000L;
  /** Longer values are shown by length and checksum. */
  private static final int VALUE_BYTES_MAX = 48;
  private static final int MESSAGE_CHARS_MAX = 200;

  private Show() {}

  static String value(Object value) {
    if (value == null) {
      return "null";
    } else if (value instanceof Result result) {
      return result(result);
    } else if (value instanceof CheckAndMutateResult result) {
      return result.isSuccess() + (result.getResult() == null ? "" : " " + result(result.getResult()));
    } else if (value instanceof byte[] bytes) {
      return bytes(bytes);
    } else if (value instanceof Throwable thrown) {
      return "fails with " + chain(thrown);
    } else if (value instanceof boolean[] flags) {
      List<Object> list = new ArrayList<>();
      for (boolean flag : flags) {
        list.add(flag);
      }
      return value(list);
    } else if (value instanceof Object[] objects) {
      return value(List.of(java.util.Arrays.stream(objects).map(Show::value).toArray()));
    } else if (value instanceof Collection<?> objects) {
      return "[" + String.join(" | ", objects.stream().map(Show::value).toList()) + "]";
    } else if (value instanceof Map<?, ?> map) {
      Map<String, String> sorted = new TreeMap<>();
      map.forEach((key, one) -> sorted.put(value(key), value(one)));
      return sorted.toString();
    }
    return stable(value.toString());
  }

  static String result(Result result) {
    if (result.isCursor()) {
      return "cursor " + bytes(result.getCursor().getRow());
    } else if (result.getExists() != null) {
      return "exists=" + result.getExists();
    } else if (result.isEmpty()) {
      return "empty";
    }
    List<String> cells = new ArrayList<>();
    for (Cell cell : result.rawCells()) {
      cells.add(cell(cell));
    }
    String more = result.mayHaveMoreCellsInRow() ? " and more" : "";
    return bytes(result.getRow()) + " {" + String.join(", ", cells) + "}" + more + (result.isStale() ? " stale" : "");
  }

  /** {@code family:qualifier@timestamp=value}, with the type when it is no put. */
  static String cell(Cell cell) {
    String type = cell.getType() == Cell.Type.Put ? "" : "/" + cell.getType();
    return bytes(CellUtil.cloneFamily(cell)) + ":" + bytes(CellUtil.cloneQualifier(cell)) + "@"
        + timestamp(cell.getTimestamp()) + type + "=" + bytes(CellUtil.cloneValue(cell));
  }

  static String timestamp(long timestamp) {
    if (timestamp == HConstants.LATEST_TIMESTAMP) {
      return "latest";
    }
    return Math.abs(timestamp - System.currentTimeMillis()) < NEAR_MS ? "now" : Long.toString(timestamp);
  }

  static String bytes(byte[] bytes) {
    if (bytes == null) {
      return "null";
    } else if (bytes.length <= VALUE_BYTES_MAX) {
      return Bytes.toStringBinary(bytes);
    }
    CRC32 checksum = new CRC32();
    checksum.update(bytes);
    return "<" + bytes.length + " bytes, " + Long.toHexString(checksum.getValue()) + ">";
  }

  /** The exception that the server or the client made, below the wrappers of threads; with its causes for each row. */
  static String chain(Throwable thrown) {
    Throwable inner = unwrapped(thrown);
    String name = inner.getClass().getSimpleName();
    if (inner instanceof RetriesExhaustedWithDetailsException details) {
      List<String> causes = new ArrayList<>();
      for (int i = 0; i < details.getNumExceptions(); i++) {
        Row row = details.getRow(i);
        causes.add((row == null ? "?" : bytes(row.getRow())) + " " + chain(details.getCause(i)));
      }
      causes.sort(null);
      return name + " " + causes;
    } else if (inner instanceof RemoteWithExtrasException remote) {
      return name + " [" + remote.getClassName() + "]";
    } else if (inner instanceof RetriesExhaustedException && inner.getCause() != null) {
      return name + " [" + chain(inner.getCause()) + "]";
    }
    return name;
  }

  /** The class of the exception that the server or the client made, also below those that count attempts. */
  static String kind(Throwable thrown) {
    Throwable inner = unwrapped(thrown);
    if (inner instanceof RetriesExhaustedWithDetailsException details && details.getNumExceptions() > 0) {
      return kind(details.getCause(0));
    } else if (inner instanceof RemoteWithExtrasException remote) {
      return remote.getClassName().replaceAll("^.*[.$]", "");
    }
    boolean counts = inner instanceof RetriesExhaustedException && inner.getCause() != null;
    return counts ? kind(inner.getCause()) : inner.getClass().getSimpleName();
  }

  /** The first line of the message, without class names before it. */
  static String message(Throwable thrown) {
    Throwable inner = unwrapped(thrown);
    if (inner instanceof RetriesExhaustedException && inner.getCause() != null) {
      inner = unwrapped(inner.getCause());
    }
    String message = inner.getMessage() == null ? "" : inner.getMessage();
    String first = message.strip().lines().findFirst().orElse("");
    String text = stable(first.replaceAll("^([a-zA-Z0-9_$]+\\.)+[A-Z][A-Za-z0-9_$]*: ", ""));
    return text.length() <= MESSAGE_CHARS_MAX ? text : text.substring(0, MESSAGE_CHARS_MAX) + "...";
  }

  private static Throwable unwrapped(Throwable thrown) {
    boolean wrapper = thrown instanceof ExecutionException || thrown instanceof CompletionException
        || thrown instanceof UncheckedIOException || thrown instanceof ServiceException;
    return wrapper && thrown.getCause() != null ? unwrapped(thrown.getCause()) : thrown;
  }

  /** Replaces names that a server chooses by symbols. */
  static String stable(String text) {
    return text
        .replaceAll("[^\\s,'\"]+,[^,\\s]*,\\d{13}\\.[0-9a-f]{32}\\.?", "<region>")
        .replaceAll("\\b[0-9a-f]{32}\\b", "<id>")
        .replaceAll("(localhost|127\\.0\\.0\\.1)(/127\\.0\\.0\\.1)?[:,]\\d+(,\\d{13})?", "<server>")
        .replaceAll("\\b1[6-9]\\d{11}\\b", "<ms>")
        .replaceAll("\\s+", " ")
        .codePoints().mapToObj(Show::printable).collect(Collectors.joining());
  }

  private static String printable(int character) {
    return character >= ' ' && character <= '~' ? Character.toString(character) : String.format("\\u%04X", character);
  }
}

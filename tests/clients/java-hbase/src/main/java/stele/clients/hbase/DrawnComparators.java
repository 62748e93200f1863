package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Draw.quoted;

import java.util.List;
import org.apache.hadoop.hbase.filter.BinaryComparator;
import org.apache.hadoop.hbase.filter.BinaryPrefixComparator;
import org.apache.hadoop.hbase.filter.BitComparator;
import org.apache.hadoop.hbase.filter.ByteArrayComparable;
import org.apache.hadoop.hbase.filter.NullComparator;
import org.apache.hadoop.hbase.filter.RegexStringComparator;
import org.apache.hadoop.hbase.filter.SubstringComparator;

/**
 * Draws comparators. Patterns have neither look-around nor back references, which are refused here.
 * BinaryComponentComparator is left out: HBase reads memory behind a value that is shorter. So are the comparators of
 * numbers: at a value of another width a client of HBase tries again and again, and here it does not.
 */
final class DrawnComparators {
  private static final List<String> PATTERNS = List.of("a", "^a", "a$", "^p?$", "[ab]+", "^.b", "5|q", "^$");

  private final Draw draw;

  DrawnComparators(Draw draw) {
    this.draw = draw;
  }

  Drawn<ByteArrayComparable> ofRow() {
    return of(draw.bound());
  }

  Drawn<ByteArrayComparable> ofFamily() {
    return of(draw.one(List.of("f", "fa", "g", "h")));
  }

  Drawn<ByteArrayComparable> ofQualifier() {
    return of(draw.qualifier());
  }

  Drawn<ByteArrayComparable> ofValue() {
    return of(draw.value());
  }

  private Drawn<ByteArrayComparable> of(String bytes) {
    String pattern = draw.one(PATTERNS);
    return switch (draw.weighted(8, 3, 2, 2, 1, 2)) {
      case 0 -> Drawn.leaf(quoted(bytes), parts -> new BinaryComparator(b(bytes)));
      case 1 -> Drawn.leaf("prefix " + quoted(bytes), parts -> new BinaryPrefixComparator(b(bytes)));
      case 2 -> Drawn.leaf("substring " + quoted(bytes), parts -> new SubstringComparator(new String(b(bytes))));
      // HBase's other engine, JONI, takes the length of a value for its end in memory, so its answers depend on the place.
      case 3 -> Drawn.leaf("pattern " + quoted(pattern), parts -> new RegexStringComparator(pattern));
      case 4 -> Drawn.leaf("null", parts -> new NullComparator());
      default -> {
        BitComparator.BitwiseOp operation = draw.one(List.of(BitComparator.BitwiseOp.values()));
        yield Drawn.leaf("bits " + operation + " " + quoted(bytes), parts -> new BitComparator(b(bytes), operation));
      }
    };
  }
}

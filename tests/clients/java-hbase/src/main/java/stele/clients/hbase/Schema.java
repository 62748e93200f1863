package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.HConstants;
import org.apache.hadoop.hbase.KeepDeletedCells;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptor;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;

/**
 * A drawn table: families, the rows that it is split at, and the changes of its files that a sequence may ask for. One
 * that is tight has few versions, and cells that expire. Newest versions are deleted in some tables only: where there is
 * none HBase leaves a marker, which counts in a raw scan.
 */
record Schema(Files files, boolean isTight, boolean deletesNewest, List<ColumnFamilyDescriptor> families,
    List<String> splits, String text) {
  /**
   * HBase drops garbage at every flush and compaction, and a read of an earlier time sees whether it is gone. Another
   * server may drop it earlier or later. So garbage is made only where both have dropped it, or nothing has, before the
   * next read.
   */
  enum Files {
    /** Nothing is flushed. */
    NONE,
    /** A flush is followed by a major compaction. */
    MAJOR,
    /**
     * No column has too many versions, nothing expires, and there is no compaction on request. Nothing is deleted, because
     * Stele compacts a file of few other cells by itself, and then a marker hides no later puts any more.
     */
    FLUSHED,
    /** The same with compactions. */
    COMPACTED;

    /** Whether garbage may be there: versions too many, deleted or expired. */
    boolean makesGarbage() {
      return this == NONE || this == MAJOR;
    }
  }

  private static final int VERSIONS_MANY = 100;
  private static final int DAY_SECONDS = 86_400;
  /** Longer than the time since the year 1970. */
  private static final int LONG_SECONDS = 2_100_000_000;
  /** The smallest that HBase takes. */
  private static final int SMALL_BLOCK_BYTES = 1_024;

  static Schema draw(Draw draw) {
    Files files = Files.values()[draw.weighted(4, 3, 2, 1)];
    boolean isTight = files.makesGarbage() && draw.chance(0.6);
    draw.endsTimes(!isTight);
    boolean deletesNewest = draw.chance(0.5);
    List<ColumnFamilyDescriptor> families = new ArrayList<>();
    StringBuilder text = new StringBuilder("files " + files);
    for (String family : draw.families) {
      families.add(family(draw, files, isTight, family, text));
    }
    List<String> splits = draw.chance(0.3) ? draw.rows(draw.between(1, 2)) : List.of();
    if (!splits.isEmpty()) {
      text.append(", split at ").append(splits);
    }
    return new Schema(files, isTight, deletesNewest, families, splits, text.toString());
  }

  private static ColumnFamilyDescriptor family(Draw draw, Files files, boolean isTight, String family,
      StringBuilder text) {
    ColumnFamilyDescriptorBuilder builder = ColumnFamilyDescriptorBuilder.newBuilder(b(family));
    boolean bySequence = draw.chance(0.1);
    if (bySequence) {
      // HBase takes deletes of such a family for deletes of its column without a name, and then forgets them.
      draw.namesColumns();
    }
    // With NEW_VERSION_BEHAVIOR HBase counts the versions at the time of each delete, and Stele when it reads.
    int versions = isTight && !bySequence ? draw.between(1, 5) : VERSIONS_MANY;
    builder.setMaxVersions(versions).setNewVersionBehavior(bySequence);
    text.append(", ").append(family).append(" {VERSIONS ").append(versions);
    text.append(bySequence ? ", NEW_VERSION_BEHAVIOR" : "");
    // HBase's major compaction counts deleted cells as versions, and so changes later reads; see docs/hbase.md.
    if (files != Files.MAJOR && draw.chance(0.5)) {
      KeepDeletedCells keep = draw.one(List.of(KeepDeletedCells.values()));
      builder.setKeepDeletedCells(keep);
      text.append(", KEEP_DELETED_CELLS ").append(keep);
    }
    if (draw.chance(0.25)) {
      int seconds = isTight && draw.chance(0.5) ? DAY_SECONDS : LONG_SECONDS;
      int atLeast = versions > 1 && draw.chance(0.6) ? draw.between(1, Math.min(3, versions - 1)) : 0;
      builder.setTimeToLive(seconds).setMinVersions(atLeast);
      text.append(", TTL ").append(seconds).append(", MIN_VERSIONS ").append(atLeast);
    } else {
      builder.setTimeToLive(HConstants.FOREVER);
    }
    BloomType bloom = draw.one(List.of(BloomType.NONE, BloomType.ROW, BloomType.ROWCOL));
    builder.setBloomFilterType(bloom);
    text.append(", BLOOMFILTER ").append(bloom);
    if (draw.chance(0.3)) {
      builder.setBlocksize(SMALL_BLOCK_BYTES);
      text.append(", BLOCKSIZE ").append(SMALL_BLOCK_BYTES);
    }
    text.append('}');
    return builder.build();
  }

  boolean isBySequence() {
    return families.stream().anyMatch(ColumnFamilyDescriptor::isNewVersionBehavior);
  }

  /** Whether markers and hidden cells may be read. HBase shows cells that have expired, too. */
  boolean mayBeRaw() {
    return files.makesGarbage() && families.stream().noneMatch(family -> family.getTimeToLive() == DAY_SECONDS);
  }

  /**
   * Whether versions may be read by the names of their columns. Then HBase returns one expired version too many, if a
   * version that lives was enough for MIN_VERSIONS. With NEW_VERSION_BEHAVIOR such a read may not end in HBase: at a
   * deleted version it seeks to the beginning of the same column.
   */
  boolean mayNameColumns() {
    return !isBySequence() && families.stream()
        .noneMatch(family -> family.getTimeToLive() == DAY_SECONDS && family.getMinVersions() > 0);
  }
}

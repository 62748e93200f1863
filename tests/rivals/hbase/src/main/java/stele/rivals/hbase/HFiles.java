package stele.rivals.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.PrivateCellUtil;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.TagType;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFileContext;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.ChecksumType;

/**
 * Writes files of cells with HBase's own writer, one for each encoding and compression: the samples in
 * {@code crates/hfile/testdata}. Arguments: the folder, then the names of compressions. Those of HBase that need more jars
 * than this project has are left out when they are not named.
 */
public final class HFiles {
  private HFiles() {}

  public static void main(String[] arguments) throws Exception {
    Configuration conf = HBaseConfiguration.create();
    FileSystem files = FileSystem.getLocal(conf).getRaw();
    Path folder = new Path(arguments[0]);
    for (DataBlockEncoding encoding : DataBlockEncoding.values()) {
      write(conf, files, folder, Sample.of(encoding.name().toLowerCase()).encoding(encoding));
    }
    for (int at = 1; at < arguments.length; at++) {
      Compression.Algorithm codec = Compression.getCompressionAlgorithmByName(arguments[at]);
      Sample sample = Sample.of("codec_" + arguments[at]).codec(codec);
      write(conf, files, folder, sample);
      write(conf, files, folder, sample.named("fast_diff_" + arguments[at]).encoding(DataBlockEncoding.FAST_DIFF));
    }
    write(conf, files, folder, Sample.of("tags").tags(false));
    write(conf, files, folder, Sample.of("tags_diff").encoding(DataBlockEncoding.DIFF).tags(false));
    write(conf, files, folder, Sample.of("tags_compressed").encoding(DataBlockEncoding.FAST_DIFF).tags(true));
    write(conf, files, folder, Sample.of("tags_row_index").encoding(DataBlockEncoding.ROW_INDEX_V1).tags(false));
    write(conf, files, folder, Sample.of("info"));
    write(conf, files, folder, Sample.of("crc32").checksum(ChecksumType.CRC32));
    write(conf, files, folder, Sample.of("no_checksum").checksum(ChecksumType.NULL));
    // An index of three levels.
    conf.setInt("hfile.index.block.max.size", 200);
    conf.setInt("hfile.index.block.min.entries", 2);
    write(conf, files, folder, Sample.of("deep_index").blocks(200));
    write(conf, files, folder, Sample.of("empty").rows(0));
    list(files, folder, Sample.of("cells"));
    list(files, folder, Sample.of("cells_with_tags").tags(false));
  }

  /** The cells of a sample as text, one in a line. */
  private static void list(FileSystem files, Path folder, Sample sample) throws IOException {
    try (FSDataOutputStream out = files.create(new Path(folder, sample.name + ".txt"), true)) {
      for (KeyValue cell : cells(sample)) {
        String line =
            String.join(
                " ",
                Bytes.toString(CellUtil.cloneRow(cell)),
                Bytes.toString(CellUtil.cloneFamily(cell)) + ":" + Bytes.toString(CellUtil.cloneQualifier(cell)),
                Long.toString(cell.getTimestamp()),
                cell.getType().toString(),
                "[" + Bytes.toString(CellUtil.cloneValue(cell)) + "]",
                HexFormat.of().formatHex(PrivateCellUtil.cloneTags(cell)));
        out.write(Bytes.toBytes(line.stripTrailing() + "\n"));
      }
    }
  }

  /** The properties of a file. */
  private record Sample(
      String name,
      DataBlockEncoding encoding,
      Compression.Algorithm codec,
      ChecksumType checksum,
      int blockBytes,
      int rows,
      boolean hasTags,
      boolean compressesTags) {

    static Sample of(String name) {
      return new Sample(
          name, DataBlockEncoding.NONE, Compression.Algorithm.NONE, ChecksumType.CRC32C, 1024, 24, false, false);
    }

    Sample named(String name) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample encoding(DataBlockEncoding encoding) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample codec(Compression.Algorithm codec) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample checksum(ChecksumType checksum) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample blocks(int blockBytes) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample rows(int rows) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, hasTags, compressesTags);
    }

    Sample tags(boolean compressed) {
      return new Sample(name, encoding, codec, checksum, blockBytes, rows, true, compressed);
    }
  }

  private static void write(Configuration conf, FileSystem files, Path folder, Sample sample) throws IOException {
    HFileContext context =
        new HFileContextBuilder()
            .withDataBlockEncoding(sample.encoding)
            .withCompression(sample.codec)
            .withChecksumType(sample.checksum)
            .withBlockSize(sample.blockBytes)
            .withIncludesTags(sample.hasTags)
            .withCompressTags(sample.compressesTags)
            .withIncludesMvcc(true)
            .build();
    Path path = new Path(folder, sample.name + ".hfile");
    files.delete(path, false);
    StoreFileWriter writer =
        new StoreFileWriter.Builder(conf, new CacheConfig(conf), files)
            .withFilePath(path)
            .withFileContext(context)
            .withBloomType(BloomType.ROW)
            .withMaxKeyCount(1000)
            .build();
    for (KeyValue cell : cells(sample)) {
      writer.append(cell);
    }
    writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(1_700_000_000_000L));
    writer.close();
  }

  /** Rows with several columns, versions, all kinds of deletes, and empty and repeated values. */
  private static List<KeyValue> cells(Sample sample) {
    List<KeyValue> cells = new ArrayList<>();
    byte[] family = Bytes.toBytes(sample.name.equals("info") ? "info" : "cf");
    for (int at = 0; at < sample.rows; at++) {
      byte[] row = Bytes.toBytes(String.format("row-%04d%s", at * 7, "x".repeat(at % 5)));
      if (at % 10 == 3) {
        cells.add(cell(sample, at, row, family, "", 50, KeyValue.Type.DeleteFamily, ""));
        cells.add(cell(sample, at, row, family, "", 40, KeyValue.Type.DeleteFamilyVersion, ""));
      }
      if (at % 10 == 4) {
        cells.add(cell(sample, at, row, family, "a", 1_000_000, KeyValue.Type.DeleteColumn, ""));
      }
      cells.add(cell(sample, at, row, family, "a", 1_000_000 - at, KeyValue.Type.Put, "value " + at % 3));
      cells.add(cell(sample, at, row, family, "a", 999_000 - at, KeyValue.Type.Put, "value " + at % 3));
      if (at % 10 == 5) {
        cells.add(cell(sample, at, row, family, "ab", 3, KeyValue.Type.Delete, ""));
      }
      cells.add(cell(sample, at, row, family, "ab", 3, KeyValue.Type.Put, ""));
      cells.add(cell(sample, at, row, family, "ab", -at, KeyValue.Type.Put, "negative time"));
      cells.add(cell(sample, at, row, family, "qualifier-" + at, Long.MAX_VALUE - 1, KeyValue.Type.Put, "v".repeat(at)));
    }
    return cells;
  }

  private static KeyValue cell(
      Sample sample, int at, byte[] row, byte[] family, String qualifier, long time, KeyValue.Type type, String value) {
    List<Tag> tags = List.of();
    if (sample.hasTags && at % 2 == 0) {
      // A lifetime that repeats, and one that does not.
      tags = List.of(new ArrayBackedTag(TagType.TTL_TAG_TYPE, Bytes.toBytes(at % 4 == 0 ? 5_000L : 5_000L + at)));
    }
    KeyValue cell = new KeyValue(row, family, Bytes.toBytes(qualifier), time, type, Bytes.toBytes(value), tags);
    cell.setSequenceId(at % 3 == 0 ? 0 : at * 1000L);
    return cell;
  }
}

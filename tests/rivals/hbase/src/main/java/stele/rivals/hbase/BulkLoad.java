package stele.rivals.hbase;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.ArrayBackedTag;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellComparator;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.Tag;
import org.apache.hadoop.hbase.TagType;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.regionserver.BloomType;
import org.apache.hadoop.hbase.regionserver.HStoreFile;
import org.apache.hadoop.hbase.regionserver.StoreFileWriter;
import org.apache.hadoop.hbase.tool.BulkLoadHFilesTool;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Loads files into a table with HBase's own tool: {@code BulkLoad HOST:PORT FOLDER}. Prints the cells that the table has
 * afterwards, in lines that begin with {@code =}, to hold against those of another server that is given the same.
 *
 * <p>The table has three regions and two families. Rows are written before, between and after three loads: of a file that
 * spans all regions and files of both families within one; of cells that replace those of the first, with deletes; and of
 * large values.
 */
public final class BulkLoad {
  private static final TableName TABLE = TableName.valueOf("bulk_load");
  private static final byte[] A = Bytes.toBytes("a");
  private static final byte[] B = Bytes.toBytes("b");
  private static final int ROWS = 3_000;

  private final Configuration conf;
  private final FileSystem files;
  private final Path folder;

  private BulkLoad(String address, String folder) throws IOException {
    conf = Cluster.client(address);
    this.folder = new Path(folder);
    files = this.folder.getFileSystem(conf);
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2) {
      System.err.println("usage: BulkLoad HOST:PORT FOLDER");
      System.exit(2);
    }
    new BulkLoad(arguments[0], arguments[1]).run(arguments[0]);
  }

  private void run(String address) throws Exception {
    files.delete(folder, true);
    try (Connection connection = ConnectionFactory.createConnection(Cluster.client(address));
        Admin admin = connection.getAdmin();
        Table table = connection.getTable(TABLE)) {
      if (admin.tableExists(TABLE)) {
        admin.disableTable(TABLE);
        admin.deleteTable(TABLE);
      }
      admin.createTable(
          TableDescriptorBuilder.newBuilder(TABLE)
              .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(A).setMaxVersions(4).build())
              .setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(B).build())
              .build(),
          new byte[][] {row(1_000), row(2_000)});
      table.put(new Put(row(7)).addColumn(A, q("q"), 100, q("written before")));
      table.put(new Put(row(8)).addColumn(A, q("q"), 100, q("written before")));
      table.put(new Put(row(1_500)).addColumn(B, q("only"), 9, q("not in any file")));
      load(first());
      table.put(new Put(row(8)).addColumn(A, q("q"), 100, q("written between")));
      table.put(new Put(row(9)).addColumn(A, q("q"), 100, q("written between")));
      show(table, "after the first load");
      load(second());
      table.delete(new Delete(row(2_500)).addFamily(A, 150));
      show(table, "after the second load");
      load(large());
      show(table, "after the third load");
      admin.flush(TABLE);
      show(table, "after a flush");
      admin.majorCompact(TABLE);
      Thread.sleep(5_000);
      show(table, "after a compaction");
      expectFailure("a family that the table lacks", unknownFamily());
    }
  }

  private static byte[] row(int number) {
    return Bytes.toBytes(String.format("row-%05d", number));
  }

  private static byte[] q(String text) {
    return Bytes.toBytes(text);
  }

  /** A file over all regions, and one of each family within the second. */
  private Path first() throws IOException {
    Path load = new Path(folder, "first");
    List<KeyValue> all = new ArrayList<>();
    for (int n = 0; n < ROWS; n++) {
      all.add(new KeyValue(row(n), A, q("q"), 100, KeyValue.Type.Put, q("first " + n)));
      all.add(new KeyValue(row(n), A, q("version"), 100 + n % 3, KeyValue.Type.Put, q("v")));
    }
    write(new Path(load, "a/spanning"), DataBlockEncoding.FAST_DIFF, Compression.Algorithm.SNAPPY, all);
    List<KeyValue> of = new ArrayList<>();
    for (int n = 1_200; n < 1_300; n++) {
      of.add(new KeyValue(row(n), B, q(""), 1, KeyValue.Type.Put, q("")));
      of.add(new KeyValue(row(n), B, q("q" + n % 7), 2, KeyValue.Type.Put, q("second family")));
    }
    write(new Path(load, "b/within"), DataBlockEncoding.NONE, Compression.Algorithm.GZ, of);
    return load;
  }

  /** Cells at times that are taken, deletes of every kind, and lifetimes. */
  private Path second() throws IOException {
    Path load = new Path(folder, "second");
    List<KeyValue> cells = new ArrayList<>();
    for (int n = 0; n < ROWS; n += 50) {
      cells.add(new KeyValue(row(n), A, q("q"), 100, KeyValue.Type.Put, q("second " + n)));
      cells.add(new KeyValue(row(n), A, q("q"), 101, KeyValue.Type.Put, q("newer " + n)));
      cells.add(new KeyValue(row(n + 1), A, null, 150, KeyValue.Type.DeleteFamily));
      cells.add(new KeyValue(row(n + 1), A, q("q"), 160, KeyValue.Type.Put, q("above the delete")));
      cells.add(new KeyValue(row(n + 2), A, q("q"), 100, KeyValue.Type.DeleteColumn));
      cells.add(new KeyValue(row(n + 3), A, q("version"), 100 + (n + 3) % 3, KeyValue.Type.Delete));
      cells.add(new KeyValue(row(n + 4), A, null, 101, KeyValue.Type.DeleteFamilyVersion));
      cells.add(new KeyValue(row(n + 5), A, q("long"), 5, KeyValue.Type.Put, q("lives"), ttl(Long.MAX_VALUE / 2)));
      cells.add(new KeyValue(row(n + 5), A, q("short"), 5, KeyValue.Type.Put, q("expired"), ttl(1)));
    }
    cells.add(new KeyValue(row(7), A, q("q"), 99, KeyValue.Type.Put, q("older than the one there")));
    write(new Path(load, "a/one"), DataBlockEncoding.DIFF, Compression.Algorithm.NONE, cells);
    return load;
  }

  private static List<Tag> ttl(long millis) {
    return List.of(new ArrayBackedTag(TagType.TTL_TAG_TYPE, Bytes.toBytes(millis)));
  }

  /** Values that are larger than a block. */
  private Path large() throws IOException {
    Path load = new Path(folder, "third");
    List<KeyValue> cells = new ArrayList<>();
    for (int n = 0; n < 30; n++) {
      byte[] value = new byte[n * 10_000];
      java.util.Arrays.fill(value, (byte) ('a' + n % 26));
      cells.add(new KeyValue(row(n * 100), B, q("large"), 3, KeyValue.Type.Put, value));
    }
    write(new Path(load, "b/large"), DataBlockEncoding.ROW_INDEX_V1, Compression.Algorithm.NONE, cells);
    return load;
  }

  private Path unknownFamily() throws IOException {
    Path load = new Path(folder, "fourth");
    KeyValue cell = new KeyValue(row(1), q("c"), q("q"), 1, KeyValue.Type.Put, q("v"));
    write(new Path(load, "c/file"), DataBlockEncoding.NONE, Compression.Algorithm.NONE, List.of(cell));
    return load;
  }

  private void write(Path path, DataBlockEncoding encoding, Compression.Algorithm codec, List<KeyValue> cells)
      throws IOException {
    TreeSet<KeyValue> sorted = new TreeSet<>(CellComparator.getInstance());
    sorted.addAll(cells);
    boolean hasTags = cells.stream().anyMatch(cell -> cell.getTagsLength() > 0);
    StoreFileWriter writer =
        new StoreFileWriter.Builder(conf, new CacheConfig(conf), files)
            .withFilePath(path)
            .withBloomType(BloomType.ROW)
            .withMaxKeyCount(cells.size())
            .withFileContext(
                new HFileContextBuilder()
                    .withDataBlockEncoding(encoding)
                    .withCompression(codec)
                    .withBlockSize(8_192)
                    .withIncludesTags(hasTags)
                    .build())
            .build();
    for (KeyValue cell : sorted) {
      writer.append(cell);
    }
    writer.appendFileInfo(HStoreFile.BULKLOAD_TIME_KEY, Bytes.toBytes(System.currentTimeMillis()));
    writer.close();
  }

  private void load(Path load) throws IOException {
    new BulkLoadHFilesTool(conf).bulkLoad(TABLE, load);
  }

  private void expectFailure(String title, Path load) {
    try {
      load(load);
      say(title + ": loaded");
    } catch (IOException e) {
      say(title + ": refused");
    }
  }

  /** A line of the result; lines without the mark are of the log. */
  private static void say(String line) {
    System.out.println("= " + line);
  }

  private static void show(Table table, String title) throws IOException {
    say("# " + title);
    try (ResultScanner results = table.getScanner(new Scan().readAllVersions().setCaching(500))) {
      for (Result result : results) {
        for (Cell cell : result.rawCells()) {
          byte[] value = CellUtil.cloneValue(cell);
          String shown =
              value.length <= 100 ? Bytes.toStringBinary(value) : value.length + " bytes of " + (char) value[0];
          say(
              Bytes.toString(CellUtil.cloneRow(cell))
                  + " "
                  + Bytes.toString(CellUtil.cloneFamily(cell))
                  + ":"
                  + Bytes.toString(CellUtil.cloneQualifier(cell))
                  + " "
                  + cell.getTimestamp()
                  + " "
                  + shown);
        }
      }
    }
  }
}

package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Draw.quoted;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.client.CheckAndMutateResult;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.filter.Filter;

/** Draws gets and scans. */
final class DrawnReads {
  /** Changes a request that is being made. */
  interface Setting<T> {
    void on(T request) throws Exception;
  }

  /** More than any scan of a drawn table has. */
  private static final int RESULTS_MAX = 1_000;

  private final Draw draw;
  private final DrawnFilters filters;
  /** Markers and hidden cells are compared, too. */
  private final boolean mayBeRaw;
  /** Not only by reading everything. */
  private final boolean drawsRaw;
  private final boolean mayNameColumns;
  /** The request being drawn has a filter. With one, HBase may not end at a version too many of a named column. */
  private boolean isFiltered;

  DrawnReads(Draw draw, Schema schema) {
    this.draw = draw;
    this.filters = new DrawnFilters(draw);
    this.mayBeRaw = schema.mayBeRaw();
    this.drawsRaw = mayBeRaw && !schema.deletesNewest();
    this.mayNameColumns = schema.mayNameColumns();
  }

  Step read() {
    return draw.chance(0.35) ? new Step(Step.Kind.READ, getting()) : new Step(Step.Kind.READ, scanning());
  }

  /** Reads all that there is. */
  Step everything() {
    boolean raw = mayBeRaw;
    return new Step(Step.Kind.READ, Drawn.leaf("scan" + (raw ? " raw" : "") + " of all versions",
        parts -> table -> results(table, new Scan().setRaw(raw).readAllVersions())));
  }

  private Drawn<Step.Operation> getting() {
    Drawn<Get> get = get();
    if (draw.chance(0.2)) {
      return Drawn.of("exists", 1, List.of(get), parts -> table -> "" + table.table.exists((Get) parts.get(0)));
    }
    return Drawn.of("read", 1, List.of(get), parts -> table -> shown(table.table.get((Get) parts.get(0))));
  }

  Drawn<Get> get() {
    String row = draw.row();
    List<Drawn<?>> settings = new ArrayList<>();
    isFiltered = draw.chance(0.35);
    if (draw.chance(0.5)) {
      settings.addAll(columns(Get::addFamily, Get::addColumn));
    }
    if (draw.chance(0.25)) {
      long[] times = draw.times();
      settings.add(this.<Get>set("times " + shown(times), get -> get.setTimeRange(times[0], times[1])));
    } else if (draw.endsTimes() && draw.chance(0.1)) {
      long time = draw.time();
      settings.add(this.<Get>set("time " + Draw.time(time), get -> get.setTimestamp(time)));
    }
    if (draw.chance(0.1)) {
      String family = draw.one(draw.families);
      long[] times = draw.times();
      settings.add(this.<Get>set("times of " + family + " " + shown(times),
          get -> get.setColumnFamilyTimeRange(b(family), times[0], times[1])));
    }
    if (draw.chance(0.6)) {
      int versions = versions();
      settings.add(this.<Get>set(versionsText(versions), get -> get.readVersions(versions)));
    }
    if (draw.chance(0.15)) {
      int limit = draw.between(0, 3);
      settings.add(this.<Get>set("cells of a family " + limit, get -> get.setMaxResultsPerColumnFamily(limit)));
    }
    if (draw.chance(0.15)) {
      int offset = draw.between(0, 2);
      settings.add(this.<Get>set("from cell " + offset, get -> get.setRowOffsetPerColumnFamily(offset)));
    }
    if (isFiltered) {
      settings.add(filtered(Get::setFilter, false, false));
    }
    return request("get " + quoted(row), settings, () -> new Get(b(row)));
  }

  private Drawn<Step.Operation> scanning() {
    List<Drawn<?>> settings = new ArrayList<>();
    boolean raw = drawsRaw && draw.chance(0.15);
    boolean reversed = draw.chance(0.25);
    isFiltered = draw.chance(0.5);
    addRows(settings);
    addCells(settings, raw);
    // First: with a batch, the client itself refuses filters of whole rows.
    if (isFiltered) {
      settings.add(filtered(Scan::setFilter, raw, reversed));
    }
    addLimits(settings, raw, reversed);
    if (raw) {
      settings.add(this.<Scan>set("raw", scan -> scan.setRaw(true)));
    }
    if (reversed) {
      // HBase refuses a reversed scan that loads families on demand, as it does by default; here that has no effect.
      settings.add(this.<Scan>set("reversed", scan -> scan.setReversed(true).setLoadColumnFamiliesOnDemand(false)));
    }
    Drawn<Scan> scan = request("scan", settings, Scan::new);
    return Drawn.of("read", 1, List.of(scan), parts -> table -> results(table, (Scan) parts.get(0)));
  }

  private void addRows(List<Drawn<?>> settings) {
    if (draw.chance(0.45)) {
      String row = draw.bound();
      boolean inclusive = draw.chance(0.6);
      settings.add(this.<Scan>set("from " + quoted(row) + (inclusive ? "" : " exclusive"),
          scan -> scan.withStartRow(b(row), inclusive)));
    }
    if (draw.chance(0.35)) {
      String row = draw.bound();
      boolean inclusive = draw.chance(0.4);
      settings.add(this.<Scan>set("to " + quoted(row) + (inclusive ? " inclusive" : ""),
          scan -> scan.withStopRow(b(row), inclusive)));
    }
  }

  private void addCells(List<Drawn<?>> settings, boolean raw) {
    if (draw.chance(raw ? 0.1 : 0.4)) {
      settings.addAll(columns(Scan::addFamily, Scan::addColumn));
    }
    if (draw.chance(0.25)) {
      long[] times = draw.times();
      settings.add(this.<Scan>set("times " + shown(times), scan -> scan.setTimeRange(times[0], times[1])));
    } else if (draw.endsTimes() && draw.chance(0.08)) {
      long time = draw.time();
      settings.add(this.<Scan>set("time " + Draw.time(time), scan -> scan.setTimestamp(time)));
    }
    if (draw.chance(0.1)) {
      String family = draw.one(draw.families);
      long[] times = draw.times();
      settings.add(this.<Scan>set("times of " + family + " " + shown(times),
          scan -> scan.setColumnFamilyTimeRange(b(family), times[0], times[1])));
    }
    if (draw.chance(raw ? 0.8 : 0.6)) {
      int versions = versions();
      settings.add(this.<Scan>set(versionsText(versions), scan -> scan.readVersions(versions)));
    }
    if (draw.chance(0.12)) {
      int limit = draw.between(0, 3);
      settings.add(this.<Scan>set("cells of a family " + limit, scan -> scan.setMaxResultsPerColumnFamily(limit)));
    }
    if (draw.chance(0.12)) {
      int offset = draw.between(0, 2);
      settings.add(this.<Scan>set("from cell " + offset, scan -> scan.setRowOffsetPerColumnFamily(offset)));
    }
  }

  private void addLimits(List<Drawn<?>> settings, boolean raw, boolean reversed) {
    if (draw.chance(0.5)) {
      int caching = draw.between(1, 3);
      settings.add(this.<Scan>set("caching " + caching, scan -> scan.setCaching(caching)));
    }
    if (draw.chance(0.25)) {
      int size = draw.one(List.of(1, 60, 200));
      settings.add(this.<Scan>set("size " + size, scan -> scan.setMaxResultSize(size)));
    }
    // A marker that is left out of the observation would be one of the cells of a batch.
    if (!raw && draw.chance(0.15)) {
      int batch = draw.between(1, 3);
      settings.add(this.<Scan>set("batch " + batch, scan -> scan.setBatch(batch)));
    }
    boolean partial = draw.chance(0.15);
    if (partial) {
      settings.add(this.<Scan>set("partial", scan -> scan.setAllowPartialResults(true)));
    }
    // The limit counts partial results, which servers cut where they please.
    if (draw.chance(0.15) && !partial) {
      int limit = draw.between(1, 3);
      settings.add(this.<Scan>set("limit " + limit, scan -> scan.setLimit(limit)));
    }
    if (!reversed && draw.chance(0.25)) {
      boolean onDemand = draw.chance(0.8);
      settings.add(this.<Scan>set("on demand " + onDemand, scan -> scan.setLoadColumnFamiliesOnDemand(onDemand)));
    }
    if (draw.chance(0.1)) {
      Scan.ReadType type = draw.one(List.of(Scan.ReadType.PREAD, Scan.ReadType.STREAM));
      settings.add(this.<Scan>set("" + type, scan -> scan.setReadType(type)));
    }
  }

  private int versions() {
    return draw.chance(0.3) ? Integer.MAX_VALUE : draw.between(1, 5);
  }

  private static String versionsText(int versions) {
    return versions == Integer.MAX_VALUE ? "all versions" : "versions " + versions;
  }

  private static String shown(long[] times) {
    return Draw.time(times[0]) + " until " + Draw.time(times[1]);
  }

  private <T> Drawn<Setting<T>> set(String text, Setting<T> setting) {
    return Drawn.leaf(text, parts -> setting);
  }

  private interface OneName<T> {
    void add(T request, byte[] family);
  }

  private interface TwoNames<T> {
    void add(T request, byte[] family, byte[] qualifier);
  }

  private <T> List<Drawn<Setting<T>>> columns(OneName<T> ofFamily, TwoNames<T> ofColumn) {
    List<Drawn<Setting<T>>> columns = new ArrayList<>();
    int count = draw.between(1, 3);
    while (columns.size() < count) {
      String family = draw.family();
      String qualifier = draw.qualifier();
      columns.add(!mayNameColumns || isFiltered || draw.chance(0.4)
          ? set(family, request -> ofFamily.add(request, b(family)))
          : set(family + ":" + qualifier, request -> ofColumn.add(request, b(family), b(qualifier))));
    }
    return columns;
  }

  private interface Filtering<T> {
    void set(T request, Filter filter);
  }

  private <T> Drawn<Setting<T>> filtered(Filtering<T> filtering, boolean raw, boolean reversed) {
    return Drawn.of("filter", 1, List.of(filters.filter(raw, reversed)), parts -> {
      Filter filter = (Filter) parts.get(0);
      return request -> filtering.set(request, filter);
    });
  }

  private interface Fresh<T> {
    T make();
  }

  @SuppressWarnings("unchecked")
  private static <T> Drawn<T> request(String head, List<Drawn<?>> settings, Fresh<T> fresh) {
    return Drawn.of(head, 0, settings, parts -> {
      T request = fresh.make();
      for (Object part : parts) {
        ((Setting<T>) part).on(request);
      }
      return request;
    });
  }

  /** Cells of a result, without how a server has cut it. */
  static String shown(Result result) {
    return result.isEmpty() ? Show.value(result) : Show.bytes(result.getRow()) + " " + cells(result);
  }

  private static String cells(Result result) {
    List<String> cells = new ArrayList<>();
    for (Cell cell : result.rawCells()) {
      String text = Show.cell(cell);
      // HBase writes a marker where the newest version of a column is deleted that has none. Stele does so only if the
      // marker hides a cell of its own change, so it is not compared.
      if (!text.contains("@now/Delete=")) {
        cells.add(text);
      }
    }
    return String.join(", ", cells);
  }

  /**
   * The results of a scan, one a line. Servers cut partial ones where they please, so the cells of a row are put
   * together.
   */
  private static String results(DrawnTable table, Scan scan) throws Exception {
    List<String> lines = new ArrayList<>();
    boolean joins = scan.getAllowPartialResults();
    byte[] last = null;
    try (ResultScanner scanner = table.table.getScanner(scan)) {
      for (Result result = scanner.next(); result != null && lines.size() < RESULTS_MAX; result = scanner.next()) {
        if (joins && last != null && Arrays.equals(last, result.getRow())) {
          lines.set(lines.size() - 1, lines.get(lines.size() - 1) + ", " + cells(result));
        } else if (result.isEmpty() || !cells(result).isEmpty()) {
          lines.add(shown(result));
        }
        last = result.getRow();
      }
    }
    return lines.isEmpty() ? "no rows" : String.join("\n", lines);
  }

  /** A condition of a filter. */
  Drawn<Filter> filter() {
    return filters.filter(false, false);
  }

  /** One answer of a batch. */
  static String shown(Object answer) {
    if (answer instanceof Result result) {
      return shown(result);
    } else if (answer instanceof Throwable thrown) {
      return "fails with " + Show.kind(thrown);
    } else if (answer instanceof CheckAndMutateResult result) {
      return result.isSuccess() + (result.getResult() == null ? "" : " " + shown(result.getResult()));
    }
    return Show.value(answer);
  }

}

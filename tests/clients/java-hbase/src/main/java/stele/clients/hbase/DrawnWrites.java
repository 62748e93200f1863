package stele.clients.hbase;

import static stele.clients.hbase.Cells.b;
import static stele.clients.hbase.Draw.quoted;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hbase.CompareOperator;
import org.apache.hadoop.hbase.client.Append;
import org.apache.hadoop.hbase.client.CheckAndMutate;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Increment;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Row;
import org.apache.hadoop.hbase.client.RowMutations;
import org.apache.hadoop.hbase.filter.Filter;
import org.apache.hadoop.hbase.io.TimeRange;

/**
 * Draws writes.
 *
 * <p>Not drawn: several increments or appends of one column in a call, of which the last counts here, and a lifetime of
 * cells that are incremented, which goes on in HBase. Both are in docs/hbase.md.
 */
final class DrawnWrites {
  /** In the past for cells of this time, and far in the future for the others. */
  private static final long LIFETIME_MS = 86_400_000;
  /** Added to the past times of cells that so have expired: under one of the same time HBase shows the cell that it replaced. */
  private static final long EXPIRED = 10;

  private final Draw draw;
  private final DrawnReads reads;
  private final boolean deletes;
  private final boolean deletesNewest;
  /** Cells expire by themselves, and nothing is incremented. */
  private final boolean lifetimes;
  private final boolean counts;
  /** Conditions may be about single columns: see {@link Schema#mayNameColumns}. */
  private final boolean readsColumns;
  /** Columns that the call being drawn has incremented or appended to. */
  private final List<String> counted = new ArrayList<>();
  /** With NEW_VERSION_BEHAVIOR HBase keeps one marker of a family and call: another one of the same number replaces it. */
  private final boolean hasOneMarker;
  /** Rows of the call being drawn with markers. */
  private final List<String> deleted = new ArrayList<>();

  DrawnWrites(Draw draw, DrawnReads reads, Schema schema) {
    this.draw = draw;
    this.reads = reads;
    this.deletes = schema.files().makesGarbage();
    this.deletesNewest = schema.deletesNewest();
    this.hasOneMarker = schema.isBySequence();
    this.lifetimes = schema.files().makesGarbage() && draw.chance(0.1);
    this.readsColumns = !schema.isBySequence();
    this.counts = readsColumns && !lifetimes && draw.chance(0.7);
  }

  Step write() {
    counted.clear();
    deleted.clear();
    String row = draw.row();
    Drawn<Step.Operation> operation = switch (draw.weighted(10, deletes ? 5 : 0, counts ? 4 : 0, 3, 4, 3)) {
      case 0 -> Drawn.of("write", 1, List.of(put(row, true)), parts -> table -> {
        table.table.put((Put) parts.get(0));
        return "done";
      });
      case 1 -> Drawn.of("write", 1, List.of(delete(row, true)), parts -> table -> {
        table.table.delete((Delete) parts.get(0));
        return "done";
      });
      case 2 -> counting(row);
      case 3 -> Drawn.of("write", 1, List.of(several(row, true)), parts -> table -> DrawnReads.shown(
          (Object) table.table.mutateRow((RowMutations) parts.get(0))));
      case 4 -> Drawn.of("write", 1, List.of(checked(row)), parts -> table -> DrawnReads.shown(
          (Object) table.table.checkAndMutate((CheckAndMutate) parts.get(0))));
      default -> batch();
    };
    return new Step(Step.Kind.WRITE, operation);
  }

  private Drawn<Step.Operation> counting(String row) {
    if (draw.chance(0.5)) {
      return Drawn.of("write", 1, List.of(increment(row)),
          parts -> table -> DrawnReads.shown((Object) table.table.increment((Increment) parts.get(0))));
    }
    return Drawn.of("write", 1, List.of(append(row)),
        parts -> table -> DrawnReads.shown((Object) table.table.append((Append) parts.get(0))));
  }

  private Drawn<Put> put(String row, boolean mayTakeServerTime) {
    boolean expires = lifetimes && draw.chance(0.4);
    List<Drawn<?>> cells = new ArrayList<>();
    int count = draw.between(1, 4);
    while (cells.size() < count) {
      String family = draw.family();
      String qualifier = draw.qualifier();
      String value = draw.value();
      boolean timed = !mayTakeServerTime || draw.chance(0.95);
      long drawn = draw.time();
      long time = expires && drawn < Draw.FUTURE ? drawn + EXPIRED : drawn;
      String text = family + ":" + qualifier + (timed ? "@" + Draw.time(time) : "") + "=" + value;
      cells.add(this.<Put>part(text, timed ? put -> put.addColumn(b(family), b(qualifier), time, b(value))
          : put -> put.addColumn(b(family), b(qualifier), b(value))));
    }
    String head = "put " + quoted(row) + (expires ? " for a day" : "");
    return Drawn.of(head, 0, cells, parts -> {
      Put put = filled(new Put(b(row)), parts);
      return expires ? put.setTTL(LIFETIME_MS) : put;
    });
  }

  private Drawn<Delete> delete(String row, boolean mayTakeServerTime) {
    deleted.add(row);
    long rowTime = draw.time();
    boolean now = mayTakeServerTime && draw.chance(0.3);
    if (draw.chance(0.15)) {
      return Drawn.leaf("delete " + quoted(row) + (now ? "" : "@" + Draw.time(rowTime)),
          parts -> now ? new Delete(b(row)) : new Delete(b(row), rowTime));
    }
    List<Drawn<?>> markers = new ArrayList<>();
    int count = hasOneMarker ? 1 : draw.between(1, 3);
    while (markers.size() < count) {
      markers.add(marker(mayTakeServerTime));
    }
    return Drawn.of("delete " + quoted(row), 1, markers, parts -> filled(new Delete(b(row)), parts));
  }

  private Drawn<DrawnReads.Setting<Delete>> marker(boolean mayTakeServerTime) {
    byte[] family = b(draw.family());
    byte[] qualifier = b(draw.qualifier());
    String column = Show.bytes(family) + ":" + Show.bytes(qualifier);
    long time = draw.time();
    boolean now = mayTakeServerTime && draw.chance(0.25);
    String at = now ? "" : "@" + Draw.time(time);
    return switch (draw.weighted(2, 2, 3, 4)) {
      case 0 -> part("family " + Show.bytes(family) + at,
          delete -> add(now, () -> delete.addFamily(family), () -> delete.addFamily(family, time)));
      case 1 -> part("version of family " + Show.bytes(family) + "@" + Draw.time(time),
          delete -> delete.addFamilyVersion(family, time));
      case 2 -> part("column " + column + at, delete -> add(now, () -> delete.addColumns(family, qualifier),
          () -> delete.addColumns(family, qualifier, time)));
      default -> {
        boolean newest = now && deletesNewest;
        yield part("version of " + column + (newest ? "" : "@" + Draw.time(time)),
            delete -> add(newest, () -> delete.addColumn(family, qualifier),
                () -> delete.addColumn(family, qualifier, time)));
      }
    };
  }

  private static void add(boolean now, Case.Action atServerTime, Case.Action atTime) throws Exception {
    (now ? atServerTime : atTime).run();
  }

  private Drawn<Increment> increment(String row) {
    List<Drawn<?>> parts = new ArrayList<>();
    addTimes(parts, Increment::setTimestamp, Increment::setTimeRange);
    int count = draw.between(1, 2);
    for (int i = 0; i < count; i++) {
      String family = draw.family();
      String qualifier = draw.named();
      long amount = draw.between(-1, 2);
      if (isNew(row, family, qualifier)) {
        parts.add(this.<Increment>part(family + ":" + qualifier + " by " + amount,
            increment -> increment.addColumn(b(family), b(qualifier), amount)));
      }
    }
    boolean answers = draw.chance(0.85);
    return Drawn.of("increment " + quoted(row) + (answers ? "" : " silently"), 0, parts,
        built -> filled(new Increment(b(row)), built).setReturnResults(answers));
  }

  private Drawn<Append> append(String row) {
    List<Drawn<?>> parts = new ArrayList<>();
    addTimes(parts, Append::setTimestamp, Append::setTimeRange);
    int count = draw.between(1, 2);
    for (int i = 0; i < count; i++) {
      String family = draw.family();
      String qualifier = draw.named();
      String value = draw.value();
      if (isNew(row, family, qualifier)) {
        parts.add(this.<Append>part(family + ":" + qualifier + " with " + value,
            append -> append.addColumn(b(family), b(qualifier), b(value))));
      }
    }
    boolean answers = draw.chance(0.85);
    return Drawn.of("append " + quoted(row) + (answers ? "" : " silently"), 0, parts,
        built -> filled(new Append(b(row)), built).setReturnResults(answers));
  }

  private interface OneTime<T> {
    void set(T request, long time);
  }

  private interface TwoTimes<T> {
    void set(T request, long from, long until) throws Exception;
  }

  /** The time must be set before the columns. */
  private <T> void addTimes(List<Drawn<?>> parts, OneTime<T> ofCells, TwoTimes<T> ofRead) {
    if (draw.chance(0.5)) {
      long time = draw.time();
      parts.add(this.<T>part("time " + Draw.time(time), request -> ofCells.set(request, time)));
    }
    if (draw.chance(0.2)) {
      long[] times = draw.times();
      parts.add(this.<T>part("reads times " + Draw.time(times[0]) + " until " + Draw.time(times[1]),
          request -> ofRead.set(request, times[0], times[1])));
    }
  }

  private boolean isNew(String row, String family, String qualifier) {
    String column = row + " " + family + ":" + qualifier;
    return !counted.contains(column) && counted.add(column);
  }

  /** A mutation that may be one of several of its row. */
  private Drawn<? extends Mutation> mutation(String row, boolean mayTakeServerTime) {
    // One column twice in a call would leave an increment of nothing.
    int counting = counts && counted.isEmpty() ? 1 : 0;
    boolean mayDelete = deletes && !(hasOneMarker && deleted.contains(row));
    return switch (draw.weighted(5, mayDelete ? 3 : 0, counting, counting)) {
      case 0 -> put(row, mayTakeServerTime);
      case 1 -> delete(row, mayTakeServerTime);
      case 2 -> increment(row);
      default -> append(row);
    };
  }

  private Drawn<RowMutations> several(String row, boolean mayTakeServerTime) {
    List<Drawn<?>> mutations = new ArrayList<>();
    int count = draw.between(1, 4);
    while (mutations.size() < count) {
      mutations.add(mutation(row, mayTakeServerTime));
    }
    return Drawn.of("mutations", 1, mutations,
        parts -> new RowMutations(b(row)).add(parts.stream().map(Mutation.class::cast).toList()));
  }

  private Drawn<CheckAndMutate> checked(String row) {
    List<Drawn<?>> parts = new ArrayList<>(List.of(condition()));
    parts.add(draw.chance(0.25) ? several(row, true) : mutation(row, true));
    if (draw.chance(0.25)) {
      long[] times = draw.times();
      String text = "in times " + Draw.time(times[0]) + " until " + Draw.time(times[1]);
      parts.add(Drawn.leaf(text, built -> TimeRange.between(times[0], times[1])));
    }
    return Drawn.of("check " + quoted(row), 2, parts, built -> {
      CheckAndMutate.Builder builder = CheckAndMutate.newBuilder(b(row));
      DrawnWrites.<CheckAndMutate.Builder>cast(built.get(0)).on(builder);
      if (built.size() > 2) {
        builder.timeRange((TimeRange) built.get(2));
      }
      return guarded(builder, built.get(1));
    });
  }

  private static CheckAndMutate guarded(CheckAndMutate.Builder builder, Object action) {
    if (action instanceof Put put) {
      return builder.build(put);
    } else if (action instanceof Delete delete) {
      return builder.build(delete);
    } else if (action instanceof Increment increment) {
      return builder.build(increment);
    } else if (action instanceof Append append) {
      return builder.build(append);
    }
    return builder.build((RowMutations) action);
  }

  private Drawn<DrawnReads.Setting<CheckAndMutate.Builder>> condition() {
    byte[] family = b(draw.family());
    byte[] qualifier = b(draw.qualifier());
    byte[] value = b(draw.value());
    String column = Show.bytes(family) + ":" + Show.bytes(qualifier);
    CompareOperator operator = draw.one(List.of(CompareOperator.LESS, CompareOperator.LESS_OR_EQUAL,
        CompareOperator.EQUAL, CompareOperator.NOT_EQUAL, CompareOperator.GREATER_OR_EQUAL, CompareOperator.GREATER));
    return switch (readsColumns ? draw.weighted(3, 2, 4, 3) : 3) {
      case 0 -> part(column + " is " + Show.bytes(value), check -> check.ifEquals(family, qualifier, value));
      case 1 -> part(column + " is absent", check -> check.ifNotExists(family, qualifier));
      case 2 -> part(column + " " + operator + " " + Show.bytes(value),
          check -> check.ifMatches(family, qualifier, operator, value));
      default -> Drawn.of("matches", 1, List.of(reads.filter()), parts -> {
        Filter filter = (Filter) parts.get(0);
        return check -> check.ifMatches(filter);
      });
    };
  }

  /** A list of requests, each of another row: the order of those of one row is not fixed. */
  private Drawn<Step.Operation> batch() {
    List<Drawn<?>> requests = new ArrayList<>();
    for (String row : draw.rows(draw.between(1, 4))) {
      requests.add(request(row));
    }
    return Drawn.of("batch", 1, requests, parts -> table -> {
      Object[] answers = new Object[parts.size()];
      String end = "";
      try {
        table.table.batch(parts.stream().map(Row.class::cast).toList(), answers);
      } catch (java.io.IOException error) {
        end = " fails with " + Show.kind(error);
      }
      List<String> shown = new ArrayList<>();
      for (Object answer : answers) {
        shown.add(DrawnReads.shown(answer));
      }
      return String.join(" | ", shown) + end;
    });
  }

  private Drawn<? extends Row> request(String row) {
    return switch (draw.weighted(6, 2, 2)) {
      case 0 -> mutation(row, false);
      case 1 -> several(row, false);
      default -> checked(row);
    };
  }

  private <T> Drawn<DrawnReads.Setting<T>> part(String text, DrawnReads.Setting<T> setting) {
    return Drawn.leaf(text, parts -> setting);
  }

  @SuppressWarnings("unchecked")
  private static <T> DrawnReads.Setting<T> cast(Object setting) {
    return (DrawnReads.Setting<T>) setting;
  }

  private static <T> T filled(T request, List<Object> settings) throws Exception {
    for (Object setting : settings) {
      DrawnWrites.<T>cast(setting).on(request);
    }
    return request;
  }
}

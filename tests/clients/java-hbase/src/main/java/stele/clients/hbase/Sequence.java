package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;

/** A table and the operations on it, drawn from a seed. */
record Sequence(Schema schema, List<Step> steps) {
  private static final int WRITES_MIN = 15;
  private static final int WRITES_MAX = 50;
  private static final int LAST_READS = 40;

  static Sequence draw(long seed) {
    Draw draw = new Draw(seed);
    Schema schema = Schema.draw(draw);
    boolean flushes = schema.files() != Schema.Files.NONE;
    DrawnReads reads = new DrawnReads(draw, schema);
    DrawnWrites writes = new DrawnWrites(draw, reads, schema);
    List<Step> steps = new ArrayList<>();
    boolean isSplit = false;
    int count = draw.between(WRITES_MIN, WRITES_MAX);
    for (int i = 0; i < count; i++) {
      steps.add(writes.write());
      if (draw.chance(0.6)) {
        steps.add(reads.read());
      }
      if (flushes && draw.chance(0.08)) {
        boolean splits = !isSplit && schema.files() != Schema.Files.FLUSHED && draw.chance(0.3);
        isSplit |= splits;
        steps.add(change(draw, schema, splits));
        steps.add(reads.everything());
      }
    }
    if (flushes) {
      steps.add(change(draw, schema, false));
    }
    steps.add(reads.everything());
    for (int i = 0; i < LAST_READS; i++) {
      steps.add(reads.read());
    }
    return new Sequence(schema, steps);
  }

  /** A change of the files, as the schema allows it. */
  private static Step change(Draw draw, Schema schema, boolean splits) {
    boolean major = schema.files() == Schema.Files.MAJOR;
    boolean compacts = major || schema.files() == Schema.Files.COMPACTED && draw.chance(0.5);
    String row = draw.row();
    String text = (splits ? "split at " + Draw.quoted(row) + ", " : "")
        + (major ? "major compaction" : compacts ? "compaction" : "flush");
    return new Step(Step.Kind.STORAGE, Drawn.leaf(text, parts -> table -> {
      String regions = splits ? table.split(Cells.b(row)) : "";
      if (compacts) {
        table.compact(major);
      } else {
        table.flush();
      }
      return "done " + regions;
    }));
  }

  /** The sequence as it is printed, up to a step. */
  String text() {
    StringBuilder text = new StringBuilder("  table: " + schema.text() + "\n");
    steps.forEach(step -> text.append("  ").append(step.text()).append('\n'));
    return text.toString();
  }
}

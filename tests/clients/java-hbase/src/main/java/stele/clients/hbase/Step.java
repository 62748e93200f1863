package stele.clients.hbase;

import java.util.List;

/** An operation of a drawn sequence. */
record Step(Kind kind, Drawn<Step.Operation> operation) {
  /** Applies itself to a table; the observation is the same for every server that behaves the same. */
  interface Operation {
    String on(DrawnTable table) throws Exception;
  }

  /** Its effect. */
  enum Kind {
    READ, WRITE, STORAGE
  }

  String text() {
    return operation.text();
  }

  boolean isRead() {
    return kind == Kind.READ;
  }

  /** The observation; a failure is one, too. */
  String observe(DrawnTable table) {
    try {
      return operation.build().on(table);
    } catch (Throwable thrown) {
      return "fails with " + Show.kind(thrown);
    }
  }

  List<Step> simpler() {
    return operation.simpler().stream().map(simpler -> new Step(kind, simpler)).toList();
  }
}

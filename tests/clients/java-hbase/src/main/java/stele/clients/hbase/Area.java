package stele.clients.hbase;

import java.util.LinkedHashMap;
import java.util.Map;

/** Cases about one subject; they share a file of expectations. */
abstract class Area {
  /** A case: it uses the client and says its observations. An exception that it throws is one, too. */
  interface Body {
    void run(Case c) throws Exception;
  }

  final String name;
  /** Whether the cases run one after the other, because they change the whole server. */
  final boolean ordered;
  private final Map<String, Body> cases = new LinkedHashMap<>();

  Area(String name) {
    this(name, false);
  }

  Area(String name, boolean ordered) {
    this.name = name;
    this.ordered = ordered;
  }

  /** Adds a case; its name has no dot. */
  final void add(String name, Body body) {
    if (cases.put(name, body) != null) {
      throw new IllegalStateException(this.name + "." + name + " is there twice");
    }
  }

  final Map<String, Body> cases() {
    return cases;
  }
}

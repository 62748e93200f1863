package stele.clients.hbase;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * A value with its text, built afresh from parts for each use, because clients change the requests that they are given.
 * Simpler ones leave parts out.
 */
final class Drawn<T> {
  /** Makes the value from the values of the parts. */
  interface Maker<T> {
    T make(List<Object> parts) throws Exception;
  }

  private final String head;
  private final List<Drawn<?>> parts;
  /** The number of first parts that cannot be left out. */
  private final int required;
  /** Whether a part can stand in place of the whole. */
  private final boolean isReplaceable;
  private final Maker<T> maker;

  private Drawn(String head, List<Drawn<?>> parts, int required, boolean isReplaceable, Maker<T> maker) {
    this.head = head;
    this.parts = parts;
    this.required = required;
    this.isReplaceable = isReplaceable;
    this.maker = maker;
  }

  /** Without parts. */
  static <T> Drawn<T> leaf(String text, Maker<T> maker) {
    return new Drawn<>(text, List.of(), 0, false, maker);
  }

  /** Of parts, the first {@code required} of which must stay. */
  static <T> Drawn<T> of(String head, int required, List<? extends Drawn<?>> parts, Maker<T> maker) {
    return new Drawn<>(head, List.copyOf(parts), required, false, maker);
  }

  /** Of parts of its own type. */
  static <T> Drawn<T> around(String head, int required, List<Drawn<T>> parts, Maker<T> maker) {
    return new Drawn<>(head, List.copyOf(parts), required, true, maker);
  }

  T build() throws Exception {
    List<Object> built = new ArrayList<>();
    for (Drawn<?> part : parts) {
      built.add(part.build());
    }
    return maker.make(built);
  }

  String text() {
    if (parts.isEmpty()) {
      return head;
    }
    return head + parts.stream().map(Drawn::text).collect(Collectors.joining(", ", "(", ")"));
  }

  /** Each with one part less, or with a simpler one. */
  @SuppressWarnings("unchecked")
  List<Drawn<T>> simpler() {
    List<Drawn<T>> simpler = new ArrayList<>();
    if (isReplaceable) {
      parts.forEach(part -> simpler.add((Drawn<T>) part));
    }
    for (int i = required; i < parts.size(); i++) {
      List<Drawn<?>> fewer = new ArrayList<>(parts);
      fewer.remove(i);
      simpler.add(with(fewer));
    }
    for (int i = 0; i < parts.size(); i++) {
      for (Drawn<?> part : parts.get(i).simpler()) {
        List<Drawn<?>> other = new ArrayList<>(parts);
        other.set(i, part);
        simpler.add(with(other));
      }
    }
    return simpler;
  }

  private Drawn<T> with(List<Drawn<?>> others) {
    return new Drawn<>(head, others, required, isReplaceable, maker);
  }
}

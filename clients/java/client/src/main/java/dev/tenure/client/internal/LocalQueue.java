package dev.tenure.client.internal;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Queues requests of one process for the same lock under the same lease, before they reach the cluster. On the loop. */
final class LocalQueue {
  /** The requests that hold or await a lock here; the first has the permit. */
  private final Map<String, ArrayDeque<Permits>> queues = new HashMap<>();

  /** The permits of one request for its locks, acquired one after the other in the order of their names. */
  final class Permits {
    private List<String> locks;
    private Runnable then;
    private int has;
    private boolean closed;

    private Permits(List<String> locks, Runnable then) {
      this.locks = locks;
      this.then = then;
    }

    private void go() {
      while (!closed && has < locks.size()) {
        ArrayDeque<Permits> queue = queues.computeIfAbsent(locks.get(has), name -> new ArrayDeque<>());
        if (!queue.contains(this)) {
          queue.add(this);
        }
        if (queue.peek() != this) {
          return;
        }
        has++;
      }
      if (!closed && then != null) {
        Runnable ready = then;
        then = null;
        ready.run();
      }
    }

    /** Gives the permits to the next requests of this process. */
    void close() {
      if (!closed) {
        closed = true;
        locks.forEach(this::leave);
      }
    }

    /** Gives up the permits of the locks that were not granted. */
    void keep(List<String> granted) {
      List<String> others = locks.stream().filter(name -> !granted.contains(name)).toList();
      locks = locks.stream().filter(granted::contains).toList();
      has = locks.size();
      others.forEach(this::leave);
    }

    private void leave(String name) {
      ArrayDeque<Permits> queue = queues.get(name);
      if (queue == null) {
        return;
      }
      boolean first = queue.peek() == this;
      queue.remove(this);
      if (queue.isEmpty()) {
        queues.remove(name);
      } else if (first) {
        queue.peek().go();
      }
    }
  }

  /** Returns whether another request holds or awaits any of these locks. */
  boolean isTaken(List<String> locks) {
    return locks.stream().anyMatch(queues::containsKey);
  }

  /** Queues for the locks, and runs {@code then} once it has all permits. */
  Permits enter(List<String> locks, Runnable then) {
    Permits permits = new Permits(locks.stream().sorted().distinct().toList(), then);
    permits.go();
    return permits;
  }
}

package dev.tenure.client.internal;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Queues requests of one process for the same lock under the same lease, before they reach the cluster. On the loop. */
final class LocalQueue {
  /** The requests that hold or await a lock here; the first has its turn. */
  private final Map<String, ArrayDeque<Turn>> queues = new HashMap<>();

  /** The turns of one request at its locks, taken one after the other in the order of their names. */
  final class Turn {
    private List<String> locks;
    private Runnable then;
    private int has;
    private boolean closed;

    private Turn(List<String> locks, Runnable then) {
      this.locks = locks;
      this.then = then;
    }

    private void go() {
      while (!closed && has < locks.size()) {
        ArrayDeque<Turn> queue = queues.computeIfAbsent(locks.get(has), name -> new ArrayDeque<>());
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

    /** Lets the next request of this process have its turn. */
    void close() {
      if (!closed) {
        closed = true;
        locks.forEach(this::leave);
      }
    }

    /** Gives up the turns at the locks that were not granted. */
    void keep(List<String> granted) {
      List<String> others = locks.stream().filter(name -> !granted.contains(name)).toList();
      locks = locks.stream().filter(granted::contains).toList();
      has = locks.size();
      others.forEach(this::leave);
    }

    private void leave(String name) {
      ArrayDeque<Turn> queue = queues.get(name);
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

  /** Queues for the locks, and runs {@code then} when all turns have come. */
  Turn enter(List<String> locks, Runnable then) {
    Turn turn = new Turn(locks.stream().sorted().distinct().toList(), then);
    turn.go();
    return turn;
  }
}

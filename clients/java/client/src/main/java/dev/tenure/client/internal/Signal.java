package dev.tenure.client.internal;

import dev.tenure.client.Cause;
import dev.tenure.client.Lost;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/** Signals a loss to everything that relies on a grant, once and for ever. Listeners must not block. */
public final class Signal {
  private final ReentrantLock lock = new ReentrantLock();
  private List<Consumer<Lost>> listeners = new ArrayList<>(1);
  private final CompletableFuture<Lost> ended = new CompletableFuture<>();
  private volatile Lost lost;

  /** Tells the loss to every listener. Returns whether it is news. */
  boolean fire(Lost loss) {
    List<Consumer<Lost>> told;
    lock.lock();
    try {
      if (lost != null) {
        return false;
      }
      lost = loss;
      told = listeners;
      listeners = List.of();
    } finally {
      lock.unlock();
    }
    told.forEach(it -> it.accept(loss));
    ended.complete(loss);
    return true;
  }

  public Optional<Lost> fired() {
    return Optional.ofNullable(lost);
  }

  /** Calls the listener when the loss comes, at once if it has come. Returns what ends the subscription. */
  public Runnable onFire(Consumer<Lost> listener) {
    lock.lock();
    try {
      if (lost == null) {
        listeners.add(listener);
        return () -> remove(listener);
      }
    } finally {
      lock.unlock();
    }
    listener.accept(lost);
    return () -> {};
  }

  private void remove(Consumer<Lost> listener) {
    lock.lock();
    try {
      if (lost == null) {
        listeners.remove(listener);
      }
    } finally {
      lock.unlock();
    }
  }

  /** The grant was released: nothing will be lost any more. */
  void close() {
    lock.lock();
    try {
      if (lost == null) {
        listeners.clear();
      }
    } finally {
      lock.unlock();
    }
    ended.complete(Lost.of(Cause.RELEASED));
  }

  /** Completes with the loss, or with {@link Cause#RELEASED} when the grant was released. Internal: runs on any thread. */
  public CompletableFuture<Lost> ended() {
    return ended;
  }
}

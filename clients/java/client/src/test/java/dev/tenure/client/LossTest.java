package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Losing a lock: the work is told before another client may start, and never reported as a success. */
@Timeout(60)
class LossTest {
  private static final Duration TTL = Duration.ofSeconds(2);

  private Server server;
  private Client ana;
  private Client ben;

  @BeforeEach
  void start() throws InterruptedException {
    server = Server.start(1);
    ana = server.client("ana");
    ben = server.client("ben");
  }

  @AfterEach
  void stop() {
    server.thaw();
    ana.close();
    ben.close();
    server.close();
  }

  @Test
  void aHeldLockIsRenewedForLongerThanItsTtl() throws Exception {
    try (Guard guard = ana.request("x").ttl(TTL).acquire()) {
      long until = System.nanoTime() + TTL.toNanos() * 3;
      while (System.nanoTime() < until) {
        guard.check();
        Thread.sleep(20);
      }
      assertTrue(ben.tryLock("x").isEmpty());
    }
  }

  /** Containers and build tools interrupt every thread of a group: the one that watches the clock must go on. */
  @Test
  void anInterruptDoesNotEndTheWatchdog() throws Exception {
    try (Guard guard = ana.request("x").ttl(TTL).acquire()) {
      List<Thread> watchdogs = Thread.getAllStackTraces().keySet().stream()
          .filter(it -> it.getName().equals("tenure-watchdog"))
          .toList();
      assertEquals(2, watchdogs.size(), "one of each client");
      watchdogs.forEach(Thread::interrupt);
      for (Thread watchdog : watchdogs) {
        watchdog.join(500);
        assertTrue(watchdog.isAlive(), "it watches on");
      }
      guard.check();
    }
  }

  @Test
  void silenceEndsTheWorkAtHalfOfTheTtlAndALateAnswerRevivesNothing() throws Exception {
    Guard guard = ana.request("x").ttl(TTL).acquire();
    AtomicLong told = new AtomicLong();
    guard.onLost(lost -> told.set(System.nanoTime()));
    server.freeze();
    long frozen = System.nanoTime();
    LostException lost = assertThrows(LostException.class, () -> guard.run(it -> Thread.sleep(10_000)));
    long took = (System.nanoTime() - frozen) / 1_000_000;
    assertTrue(took <= 1_000 + 150, "the newest renewal was sent before the freeze; it took " + took + " ms");
    assertEquals(Cause.CLUSTER_UNREACHABLE, lost.lost().cause());
    assertTrue(lost.getSuppressed()[0] instanceof InterruptedException);
    assertFalse(Thread.currentThread().isInterrupted(), "the interrupt was for the work alone");
    assertEquals(Standing.LOST, guard.standing());
    server.thaw();
    Thread.sleep(500);
    assertThrows(LostException.class, guard::check);
    assertTrue(told.get() != 0);
    assertThrows(LostException.class, guard::close);
    // The farewell told the cluster that the work has stopped: ben need not wait until the lease ends.
    ben.tryLock("x", Duration.ofSeconds(5)).orElseThrow().close();
  }

  @Test
  void workThatOutlivesItsLockIsNoSuccessWhateverItReturns() throws Exception {
    server.freeze();
    server.thaw();
    try (Guard guard = ana.request("x").ttl(TTL).acquire()) {
      server.freeze();
      LostException lost = assertThrows(LostException.class, () -> guard.call(it -> {
        long until = System.nanoTime() + Duration.ofMillis(1_500).toNanos();
        while (System.nanoTime() < until) {
          Thread.onSpinWait();
        }
        return "done";
      }));
      assertEquals(0, lost.getSuppressed().length);
      CompletableFuture<String> async = new CompletableFuture<>();
      ExecutionException late = assertThrows(ExecutionException.class, () -> guard.whileHeld(async).get());
      assertTrue(late.getCause() instanceof LostException);
      assertTrue(async.isCancelled());
      server.thaw();
    } catch (LostException onClose) {
      assertEquals(Cause.CLUSTER_UNREACHABLE, onClose.lost().cause());
    }
  }

  @Test
  void anErrorOfTheWorkIsItsOwnAndIsNotMaskedByTheLoss() throws Exception {
    IOException own = assertThrows(IOException.class, () -> ana.run("x", guard -> {
      throw new IOException("disk");
    }));
    assertEquals("disk", own.getMessage());
    IOException masked = assertThrows(IOException.class, () -> {
      try (Guard guard = ana.lock("x")) {
        ben.force("x", guard.token(), "stuck");
        guard.ended().get(5, TimeUnit.SECONDS);
        throw new IOException("disk");
      }
    });
    assertEquals("disk", masked.getMessage());
    assertTrue(masked.getSuppressed()[0] instanceof LostException);
  }

  @Test
  void aForcedHolderIsToldByWhomAndWhyAndTheNextWaitsUntilItHasStopped() throws Exception {
    Guard guard = ana.lock("x");
    CompletableFuture<Guard> next = ben.lockAsync("x");
    ben.force("x", guard.token(), "stuck for an hour");
    Lost lost = guard.ended().get(5, TimeUnit.SECONDS);
    assertEquals(Cause.FORCED, lost.cause());
    assertEquals(Optional.of("ben"), lost.by());
    assertEquals(Optional.of("stuck for an hour"), lost.reason());
    assertEquals("forced by ben: stuck for an hour", lost.toString());
    assertThrows(TimeoutException.class, () -> next.get(500, TimeUnit.MILLISECONDS));
    assertThrows(LostException.class, guard::release);
    next.get(2, TimeUnit.SECONDS).close();
  }

  @Test
  void theClusterTakesALockAwayAfterMaxHold() throws Exception {
    Guard guard = ana.request("x").ttl(Duration.ofSeconds(1)).maxHold(Duration.ofMillis(1_500)).acquire();
    assertEquals(Cause.MAX_HOLD, guard.ended().get(10, TimeUnit.SECONDS).cause());
    assertThrows(LostException.class, guard::release);
  }

  @Test
  void aFrozenClusterIsUnknownOrUnavailableAndNeverASuccess() throws Exception {
    Client brief = Client.builder().addresses(server.address()).timeout(Duration.ofSeconds(1)).connect();
    server.freeze();
    TimedOutException limit = assertThrows(
        TimedOutException.class, () -> brief.request("x").timeout(Duration.ofMillis(200)).acquire());
    assertEquals(Effect.UNKNOWN, limit.effect());
    TenureException lock = assertThrows(TenureException.class, () -> brief.tryLock("x"));
    assertEquals(Effect.UNKNOWN, lock.effect());
    UnknownOutcomeException put = assertThrows(UnknownOutcomeException.class, () -> brief.key("k").put("v"));
    assertTrue(put.requestId().isPresent());
    assertThrows(UnavailableException.class, () -> brief.key("k").get());
    server.thaw();
    // The repetition learns the outcome of the first sending, and takes effect once.
    assertEquals(1, brief.key("k").again(put.requestId().get()).put("v"));
    assertEquals(1, brief.key("k").get().orElseThrow().version());
    // What was granted unseen is given back.
    brief.tryLock("x", Duration.ofSeconds(5)).orElseThrow().close();
    brief.close();
  }

  @Test
  void withoutAnyMemberTheClientSaysSo() {
    UnavailableException unreachable = assertThrows(
        UnavailableException.class,
        () -> Client.builder().addresses("127.0.0.1:1").timeout(Duration.ofMillis(300)).connect());
    assertTrue(unreachable.getMessage().contains("127.0.0.1:1 refused"), unreachable.getMessage());
    assertTrue(unreachable.retryable());
  }
}

package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;

/** Locks against a real cluster: acquire, queue, give up, release. */
@Timeout(30)
class LockTest {
  private static Server server;
  private Client ana;
  private Client ben;
  private String lock;

  @BeforeAll
  static void start() {
    server = Server.start(1);
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  @BeforeEach
  void connect(TestInfo test) throws InterruptedException {
    ana = server.client("ana");
    ben = server.client("ben");
    lock = test.getDisplayName();
  }

  @AfterEach
  void disconnect() {
    ana.close();
    ben.close();
  }

  private void awaitWaiting(int count) throws InterruptedException {
    while (ana.show(lock).map(LockInfo::waiting).orElse(0) != count) {
      Thread.sleep(5);
    }
  }

  @Test
  void aLockIsHeldByOneAndPassesOnInOrderWithLargerTokens() throws Exception {
    CompletableFuture<Guard> next;
    long first;
    try (Guard guard = ana.lock(lock)) {
      first = guard.token();
      guard.check();
      assertEquals(Standing.VALID, guard.standing());
      next = ben.lockAsync(lock);
      awaitWaiting(1);
      assertFalse(next.isDone());
    }
    try (Guard guard = next.get(5, TimeUnit.SECONDS)) {
      assertTrue(Long.compareUnsigned(guard.token(), first) > 0);
    }
    assertTrue(ana.show(lock).isEmpty());
  }

  @Test
  void aTryTellsWhoHasIt() throws Exception {
    try (Guard guard = ana.lock(lock)) {
      assertTrue(ben.tryLock(lock).isEmpty());
      RefusedException refused = assertThrows(
          RefusedException.class, () -> ben.request(lock).waitAtMost(Duration.ZERO).acquire());
      assertEquals("HELD", refused.reason());
      assertEquals("ana", refused.holder().orElseThrow().client());
      assertEquals(guard.token(), refused.holder().orElseThrow().token());
      assertEquals(Effect.NONE, refused.effect());
      assertTrue(refused.retryable());
    }
    ben.tryLock(lock).orElseThrow().close();
  }

  @Test
  void aWaitEndsAfterItsTimeAndTheCallersLimitIsHard() throws Exception {
    try (Guard guard = ana.lock(lock)) {
      long began = System.nanoTime();
      assertTrue(ben.tryLock(lock, Duration.ofMillis(300)).isEmpty());
      long took = (System.nanoTime() - began) / 1_000_000;
      assertTrue(took >= 290 && took < 1_500, "it took " + took + " ms");
      TimedOutException limit = assertThrows(
          TimedOutException.class, () -> ben.request(lock).timeout(Duration.ofSeconds(2)).acquire());
      assertEquals(Effect.NONE, limit.effect());
      awaitWaiting(0);
      guard.check();
    }
  }

  @Test
  void anInterruptedThreadGivesUpItsPlace() throws Exception {
    try (Guard guard = ana.lock(lock)) {
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      Thread waiting = new Thread(() -> {
        try {
          ben.lock(lock);
        } catch (Throwable error) {
          thrown.set(error);
        }
      });
      waiting.start();
      awaitWaiting(1);
      waiting.interrupt();
      waiting.join(5_000);
      assertTrue(thrown.get() instanceof InterruptedException);
      awaitWaiting(0);
      guard.check();
    }
  }

  @Test
  void aCancelledFutureGivesUpItsPlaceOrItsGrant() throws Exception {
    try (Guard guard = ana.lock(lock)) {
      CompletableFuture<Guard> waiting = ben.lockAsync(lock);
      awaitWaiting(1);
      waiting.cancel(true);
      awaitWaiting(0);
      guard.check();
    }
    // However the cancellation meets the grant, nothing stays held.
    for (int at = 0; at < 30; at++) {
      CompletableFuture<Guard> soon = ben.lockAsync(lock);
      TimeUnit.MICROSECONDS.sleep(at * 100L);
      if (!soon.cancel(true)) {
        // The guard was there before the cancellation.
        soon.join().close();
      }
    }
    ana.tryLock(lock, Duration.ofSeconds(5)).orElseThrow().close();
  }

  @Test
  void sharedHoldersAreTogetherAndSlotsAreNumbered() throws Exception {
    try (Guard one = ana.request(lock).shared().acquire();
        Guard two = ben.request(lock).shared().acquire()) {
      assertTrue(ana.tryLock(lock).isEmpty());
      one.check();
      two.check();
    }
    String pool = lock + "/pool";
    try (Guard one = ana.request(pool).slots(2).acquire();
        Guard two = ben.request(pool).slots(2).acquire()) {
      assertEquals(OptionalInt.of(0), one.slot());
      assertEquals(OptionalInt.of(1), two.slot());
      assertTrue(ana.request(pool).slots(2).tryAcquire().isEmpty());
    }
  }

  @Test
  void severalLocksAreTakenTogetherOrNotAtAll() throws Exception {
    String other = lock + "/b";
    try (Guard held = ben.lock(other)) {
      assertTrue(ana.request(lock, other).tryAcquire().isEmpty());
      assertTrue(ana.show(lock).isEmpty());
      held.check();
    }
    try (Guard both = ana.request(lock, other).acquire()) {
      assertEquals(List.of(lock, other), both.locks().stream().map(HeldLock::name).toList());
      assertTrue(ben.tryLock(other).isEmpty());
    }
  }

  @Test
  void reenteringGivesTheLockBackWithTheLastGuard() throws Exception {
    Guard guard = ana.lock(lock);
    Guard inner = guard.reenter();
    assertEquals(guard.token(), inner.token());
    guard.release();
    assertTrue(guard.isLost());
    inner.check();
    assertTrue(ben.tryLock(lock).isEmpty());
    inner.release();
    assertEquals(Cause.RELEASED, inner.lost().orElseThrow().cause());
    ben.tryLock(lock).orElseThrow().close();
  }

  @Test
  void aDowngradeHasNoGapAndANewToken() throws Exception {
    try (Guard guard = ana.lock(lock)) {
      long before = guard.token();
      guard.downgrade();
      assertTrue(Long.compareUnsigned(guard.token(), before) > 0);
      guard.check();
      ben.request(lock).shared().acquire().close();
      assertTrue(ben.tryLock(lock).isEmpty());
    }
  }

  @Test
  void aLeaseHoldsSeveralLocksAndASecondRequestWaitsInside() throws Exception {
    try (Lease lease = ana.lease(Duration.ofSeconds(5))) {
      Guard guard = lease.lock(lock);
      assertEquals(lease.id(), guard.lease());
      assertTrue(lease.request(lock).tryAcquire().isEmpty());
      CompletableFuture<Guard> second = lease.request(lock).acquireAsync();
      Thread.sleep(50);
      assertFalse(second.isDone());
      RefusedException used = assertThrows(RefusedException.class, lease::release);
      assertEquals("LEASE_IN_USE", used.reason());
      guard.release();
      second.get(5, TimeUnit.SECONDS).release();
    }
  }

  @Test
  void aRingOfWaitsIsRefused() throws Exception {
    String other = lock + "/b";
    try (Lease one = ana.lease(Duration.ofSeconds(5));
        Lease two = ben.lease(Duration.ofSeconds(5))) {
      Guard a = one.lock(lock);
      Guard b = two.lock(other);
      CompletableFuture<Guard> waiting = one.request(other).acquireAsync();
      while (ana.show(other).orElseThrow().waiting() == 0) {
        Thread.sleep(5);
      }
      RefusedException ring = assertThrows(RefusedException.class, () -> two.lock(lock));
      assertEquals("DEADLOCK", ring.reason());
      b.release();
      waiting.get(5, TimeUnit.SECONDS).release();
      a.release();
    }
  }

  @Test
  void badInputIsRefusedBeforeAnythingIsSent() {
    assertEquals("INVALID_NAME", assertThrows(InvalidRequestException.class, () -> ana.lock("")).reason());
    assertEquals("INVALID_NAME", assertThrows(InvalidRequestException.class, () -> ana.lock("a\nb")).reason());
    Duration hours = Duration.ofHours(2);
    assertEquals("INVALID_TTL",
        assertThrows(InvalidRequestException.class, () -> ana.request(lock).ttl(hours).acquire()).reason());
    InvalidRequestException grace = assertThrows(
        InvalidRequestException.class, () -> ana.request(lock).grace(Duration.ofSeconds(9)).acquire());
    assertEquals(Optional.of("grace"), grace.field());
    assertEquals("DUPLICATE_LOCK",
        assertThrows(InvalidRequestException.class, () -> ana.request(lock, lock).acquire()).reason());
    ExecutionException async = assertThrows(ExecutionException.class, () -> ana.lockAsync("").get());
    assertTrue(async.getCause() instanceof InvalidRequestException);
  }

  @Test
  void aClosedClientTakesNothingAndNamesWhatIsHeld() throws Exception {
    Client client = server.client("cid");
    Guard guard = client.lock(lock);
    StillHeldException held = assertThrows(StillHeldException.class, () -> client.close(Duration.ofMillis(100)));
    assertEquals(List.of(lock), held.locks());
    assertThrows(ClosedException.class, () -> client.lock(lock + "/b"));
    guard.check();
    guard.release();
    client.close(Duration.ofSeconds(5));
    assertThrows(ClosedException.class, () -> client.lock(lock));
    assertThrows(ClosedException.class, () -> client.key("k").get());
  }

  @Test
  void closingTheClientStopsTheWorkThatStillRuns() throws Exception {
    Client client = server.client("cid");
    Guard guard = client.lock(lock);
    CompletableFuture<Lost> told = guard.ended();
    client.close();
    assertEquals(Cause.REVOKED, told.get(5, TimeUnit.SECONDS).cause());
    assertTrue(guard.isLost());
  }
}

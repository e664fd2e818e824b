package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** What a request can say beside its lock, and what can become of a hold, against a real cluster. */
@Timeout(30)
class HoldsTest {
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

  private static void assertRefused(String reason, Executable call) {
    TenureException refused = assertThrows(TenureException.class, call);
    assertEquals(reason, refused.reason(), refused.getMessage());
    assertEquals(Effect.NONE, refused.effect());
  }

  private static String reasonOf(CompletableFuture<?> call) {
    ExecutionException failed = assertThrows(ExecutionException.class, () -> call.get(10, TimeUnit.SECONDS));
    return ((TenureException) failed.getCause()).reason();
  }

  @Test
  void severalSlotsHaveATokenEachAlsoUnderALease() throws Exception {
    try (Guard three = ana.request(lock).slots(4).take(3).acquire()) {
      assertEquals(List.of(0, 1, 2), three.locks().stream().map(it -> it.slot().orElseThrow()).toList());
      assertEquals(3, three.locks().stream().map(HeldLock::token).distinct().count());
      assertTrue(ben.request(lock).slots(4).take(2).tryAcquire().isEmpty());
    }
    try (Lease lease = ben.lease(Duration.ofSeconds(15))) {
      for (int round = 0; round < 2; round++) {
        try (Guard all = lease.request(lock).slots(4).take(4).acquire()) {
          assertEquals(4, all.locks().size());
        }
      }
    }
  }

  @Test
  void anUrgentRequestPassesAndANewerOneReplacesTheOlder() throws Exception {
    CompletableFuture<Guard> plain;
    CompletableFuture<Guard> newer;
    try (Guard guard = ana.lock(lock)) {
      plain = ben.lockAsync(lock);
      awaitWaiting(1);
      CompletableFuture<Guard> old = ben.request(lock).priority(5).supersede("main").acquireAsync();
      awaitWaiting(2);
      newer = ana.request(lock).priority(5).supersede("main").acquireAsync();
      assertEquals("SUPERSEDED", reasonOf(old));
      guard.check();
    }
    try (Guard first = newer.get(5, TimeUnit.SECONDS)) {
      assertFalse(plain.isDone());
      first.check();
    }
    plain.get(5, TimeUnit.SECONDS).close();
  }

  @Test
  void aLockIsWithheldForItsLeastTime() throws Exception {
    long began = System.nanoTime();
    ana.request(lock).minHold(Duration.ofMillis(500)).acquire().release();
    assertTrue(ben.tryLock(lock).isEmpty());
    ben.lock(lock).release();
    assertTrue(System.nanoTime() - began > 400_000_000L);
  }

  @Test
  void badOptionsAreRefusedBeforeAnythingIsSent() {
    Map<LockRequest, String> cases = Map.of(
        ana.request(lock).take(2), "INVALID_FIELD",
        ana.request(lock).slots(4).take(0), "INVALID_FIELD",
        ana.request(lock).priority(10), "INVALID_FIELD",
        ana.request(lock).supersede(""), "INVALID_NAME",
        ana.request(lock).minHold(Duration.ofSeconds(-1)), "INVALID_FIELD",
        ana.request(lock).progressWithin(Duration.ofSeconds(-1)), "INVALID_FIELD");
    cases.forEach((request, reason) -> {
      assertEquals(reason, assertThrows(InvalidRequestException.class, request::acquire).reason());
    });
  }

  @Test
  void aReaderBecomesTheWriterAndAReaderAgain() throws Exception {
    try (Guard guard = ana.request(lock).shared().acquire()) {
      Guard reader = ben.request(lock).shared().acquire();
      long token = guard.token();
      assertRefused("HELD", () -> guard.upgrade(Duration.ZERO));
      assertRefused("WAIT_TIMEOUT", () -> guard.upgrade(Duration.ofMillis(200)));
      guard.check();
      assertEquals(token, guard.token());
      // An interrupted upgrade leaves the queue, and the hold stays as it was.
      Thread interrupted = new Thread(() -> assertThrows(InterruptedException.class, guard::upgrade));
      interrupted.start();
      awaitWaiting(1);
      interrupted.interrupt();
      interrupted.join();
      awaitWaiting(0);
      guard.check();
      CompletableFuture<Void> upgrading = CompletableFuture.runAsync(() -> {
        try {
          guard.upgrade();
        } catch (InterruptedException error) {
          throw new IllegalStateException(error);
        }
      });
      awaitWaiting(1);
      assertRefused("DEADLOCK", reader::upgrade);
      reader.release();
      upgrading.get(5, TimeUnit.SECONDS);
      assertTrue(guard.token() > token);
      guard.check();
      assertTrue(ben.request(lock).shared().tryAcquire().isEmpty());
      guard.downgrade();
      ben.request(lock).shared().acquire().release();
    }
  }

  @Test
  void aHoldIsGivenToALeaseThatWaits() throws Exception {
    Lease lease = ben.lease(Duration.ofSeconds(15));
    Guard guard = ana.lock(lock);
    assertRefused("NOT_WAITING", () -> guard.handOn(lease.id()));
    guard.check();
    CompletableFuture<Guard> receiving = lease.request(lock).acquireAsync();
    awaitWaiting(1);
    long token = guard.handOn(lease.id());
    Guard received = receiving.get(5, TimeUnit.SECONDS);
    assertEquals(token, received.token());
    assertEquals(Cause.RELEASED, assertThrows(LostException.class, guard::check).lost().cause());
    assertEquals(Cause.RELEASED, guard.ended().get(5, TimeUnit.SECONDS).cause());
    guard.close();
    received.release();
    lease.close();
    try (Guard both = ana.request("a", "b").shared().acquire()) {
      assertRefused("SEVERAL_LOCKS", () -> both.handOn("1"));
      assertRefused("SEVERAL_LOCKS", both::upgrade);
      assertRefused("INVALID_FIELD", () -> both.handOn("nobody"));
    }
    try (Guard one = ana.request("a").shared().acquire(); Guard again = one.reenter()) {
      assertRefused("GUARD_SHARED", again::upgrade);
    }
  }

  @Test
  void aHolderWithoutProgressLosesTheLock() throws Exception {
    Guard guard = ana.request(lock).ttl(Duration.ofSeconds(2)).progressWithin(Duration.ofSeconds(3)).acquire();
    assertTrue(guard.progress(1).orElseThrow().toMillis() > 0);
    assertEquals(Cause.NO_PROGRESS, guard.ended().get(15, TimeUnit.SECONDS).cause());
    assertThrows(LostException.class, guard::close);
    try (Guard plain = ana.lock(lock + "/plain")) {
      assertTrue(plain.progress(1).isEmpty());
      assertRefused("INVALID_FIELD", () -> plain.progress(-1));
    }
  }

  @Test
  void aSemaphoreIsResizedWhileItIsUsed() throws Exception {
    try (Guard one = ana.request(lock).slots(1).acquire()) {
      ana.resize(lock, 2);
      try (Guard two = ben.request(lock).slots(1).acquire()) {
        assertEquals(1, two.slot().orElseThrow());
        CompletableFuture<Guard> both = ben.request(lock).slots(1).take(2).acquireAsync();
        awaitWaiting(1);
        ana.resize(lock, 1);
        assertEquals("INVALID_SLOTS", reasonOf(both));
      }
      one.check();
    }
    ana.resizeByRequests(lock);
    assertRefused("INVALID_SLOTS", () -> ana.resize(lock, 0));
  }

  @Test
  void nothingIsGrantedBelowADrainedPrefix() throws Exception {
    try (Guard guard = ana.lock("db/one")) {
      ben.drain("db/", "new disks");
      Drain drain = ben.drains().get(0);
      assertEquals("db/", drain.prefix());
      assertEquals("new disks", drain.reason().orElseThrow());
      assertEquals("ben", drain.by().orElseThrow());
      assertEquals(1, drain.holders());
      assertRefused("DRAINING", () -> ana.request("db/two").waitAtMost(Duration.ZERO).acquire());
      guard.check();
    }
    assertTrue(ben.undrain("db/"));
    assertFalse(ben.undrain("db/"));
  }
}

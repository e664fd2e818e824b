package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The fence that is raised before a guard is handed out, against a real cluster. */
@Timeout(30)
class FenceTest {
  private static final Fence FOREVER = lock -> Thread.sleep(60_000);
  private static Server server;
  private Client client;

  @BeforeAll
  static void start() {
    server = Server.start(1);
  }

  @AfterAll
  static void stop() {
    server.close();
  }

  @BeforeEach
  void connect() throws InterruptedException {
    client = Client.builder().addresses(server.address()).name("ana").timeout(Duration.ofSeconds(1)).connect();
  }

  @AfterEach
  void disconnect() {
    client.close();
  }

  private void assertFree(String lock) throws InterruptedException {
    client.tryLock(lock, Duration.ofSeconds(5)).orElseThrow().release();
  }

  @Test
  void theFenceIsRaisedForEachLockBeforeTheGuardIsHandedOut() throws Exception {
    List<HeldLock> raised = new CopyOnWriteArrayList<>();
    try (Guard guard = client.request("x", "y").fence(raised::add).acquire()) {
      assertEquals(guard.locks(), raised);
    }
    try (Guard guard = client.request("x").fence(raised::add).acquireAsync().get(5, TimeUnit.SECONDS)) {
      assertEquals(guard.token(), raised.get(2).token());
    }
    try (Lease lease = client.lease(Duration.ofSeconds(15)); Guard guard = lease.request("x").fence(raised::add).acquire()) {
      assertEquals(guard.token(), raised.get(3).token());
    }
    try (Leadership lead = client.election("x").campaign("v", request -> request.fence(raised::add))) {
      assertEquals(lead.token(), raised.get(4).token());
    }
    assertFalse(Thread.interrupted());
  }

  @Test
  void aFenceThatRefusesGivesTheLockBack() throws Exception {
    IOException why = new IOException("a newer token was seen");
    FenceException refused = assertThrows(FenceException.class, () -> client.request("refused").fence(lock -> {
      throw why;
    }).acquire());
    assertSame(why, refused.getCause());
    assertEquals(Effect.NONE, refused.effect());
    assertFree("refused");
  }

  @Test
  void aFenceThatThrowsAnErrorRefusesToo() throws Exception {
    AssertionError why = new AssertionError("the resource is not there");
    Fence broken = lock -> {
      throw why;
    };
    FenceException refused = assertThrows(FenceException.class, () -> client.request("broken").fence(broken).acquire());
    assertSame(why, refused.getCause());
    assertEquals(Effect.NONE, refused.effect());
    assertFree("broken");
  }

  @Test
  void aRequestThatTheCallerTimesOutGivesTheLockBack() throws Exception {
    CompletableFuture<Guard> raising = client.request("timed out").fence(FOREVER).acquireAsync();
    raising.orTimeout(200, TimeUnit.MILLISECONDS);
    ExecutionException late = assertThrows(ExecutionException.class, () -> raising.get(5, TimeUnit.SECONDS));
    assertInstanceOf(TimeoutException.class, late.getCause());
    assertFree("timed out");

    List<HeldLock> raised = new CopyOnWriteArrayList<>();
    Guard held = client.lock("timed out");
    CompletableFuture<Guard> queued = client.request("timed out").fence(raised::add).acquireAsync();
    queued.orTimeout(200, TimeUnit.MILLISECONDS);
    assertThrows(ExecutionException.class, () -> queued.get(5, TimeUnit.SECONDS));
    held.release();
    assertFree("timed out");
    assertEquals(List.of(), raised);
  }

  @Test
  void aFenceHasTheTimeOfARequestOrWhatIsLeftOfTheCallers() throws Exception {
    FenceException late = assertThrows(FenceException.class, () -> client.request("slow").fence(FOREVER).acquire());
    assertTrue(late.getMessage().contains("1000ms"), late.getMessage());
    assertFree("slow");
    Duration limit = Duration.ofMillis(200);
    assertThrows(TimedOutException.class, () -> client.request("slow").timeout(limit).fence(FOREVER).acquire());
    assertFree("slow");
  }

  @Test
  void aFenceEndsWithTheRequestAndWithTheLock() throws Exception {
    CountDownLatch interrupted = new CountDownLatch(1);
    CountDownLatch begun = new CountDownLatch(1);
    CompletableFuture<Guard> request = client.request("given up").fence(lock -> {
      begun.countDown();
      try {
        Thread.sleep(60_000);
      } catch (InterruptedException stopped) {
        interrupted.countDown();
        throw stopped;
      }
    }).acquireAsync();
    assertTrue(begun.await(5, TimeUnit.SECONDS));
    request.cancel(false);
    assertTrue(interrupted.await(5, TimeUnit.SECONDS));
    assertFree("given up");
    LostException lost = assertThrows(LostException.class, () -> client.request("taken").fence(lock -> {
      client.force(lock.name(), lock.token(), "stuck");
      FOREVER.raise(lock);
    }).acquire());
    assertEquals(Cause.FORCED, lost.lost().cause());
    assertFree("taken");
  }

  @Test
  void aFenceThatIgnoresItsInterruptDoesNotHoldUpItsRequest() throws Exception {
    CountDownLatch ends = new CountDownLatch(1);
    Fence deaf = lock -> {
      while (true) {
        try {
          ends.await();
          return;
        } catch (InterruptedException ignored) {
          // It goes on.
        }
      }
    };
    try {
      FenceException late = assertThrows(FenceException.class, () -> client.request("deaf").fence(deaf).acquire());
      assertTrue(late.getMessage().contains("1000ms"), late.getMessage());
      Duration limit = Duration.ofMillis(200);
      assertThrows(TimedOutException.class, () -> client.request("deaf 2").timeout(limit).fence(deaf).acquire());
      LostException lost = assertThrows(LostException.class, () -> client.request("deaf 3").fence(lock -> {
        client.force(lock.name(), lock.token(), "stuck");
        deaf.raise(lock);
      }).acquire());
      assertEquals(Cause.FORCED, lost.lost().cause());
      // The fence still runs under the lock.
      assertTrue(client.tryLock("deaf").isEmpty());
    } finally {
      ends.countDown();
    }
    assertFree("deaf");
    assertFree("deaf 2");
    assertFree("deaf 3");
  }

  @Test
  void aFenceThatFailsBecauseTheLockIsLostIsALoss() throws Exception {
    LostException lost = assertThrows(LostException.class, () -> client.request("closed").fence(lock -> {
      client.force(lock.name(), lock.token(), "stuck");
      try {
        FOREVER.raise(lock);
      } catch (InterruptedException stopped) {
        throw new IOException("the connection is closed", stopped);
      }
    }).acquire());
    assertEquals(Cause.FORCED, lost.lost().cause());
    assertFree("closed");
  }
}

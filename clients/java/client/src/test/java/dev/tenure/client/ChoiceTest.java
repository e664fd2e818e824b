package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
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
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Requests for any one of several locks, and for any slot of a pool, against a real cluster. */
@Timeout(30)
class ChoiceTest {
  private static Server server;
  private Client ana;
  private Client ben;

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
    ana = server.client("ana");
    ben = server.client("ben");
  }

  @AfterEach
  void disconnect() {
    ana.close();
    ben.close();
  }

  private int waiting(String lock) throws InterruptedException {
    return ana.show(lock).map(LockInfo::waiting).orElse(0);
  }

  private void awaitWaiting(String lock, int count) throws InterruptedException {
    while (waiting(lock) != count) {
      Thread.sleep(5);
    }
  }

  private static void assertRefused(String reason, Executable call) {
    TenureException refused = assertThrows(TenureException.class, call);
    assertEquals(reason, refused.reason(), refused.getMessage());
    assertEquals(Effect.NONE, refused.effect());
  }

  @Test
  void anyOfSeveralLocksIsGrantedAndTheOtherQueuesAreLeft() throws Exception {
    Guard first = ana.lockAny("any/1", "any/0");
    Guard second = ana.lockAny("any/1", "any/0");
    assertEquals(List.of("any/0", "any/1"), List.of(first.name(), second.name()));
    assertEquals(1, first.locks().size());
    assertTrue(ben.requestAny("any/0", "any/1").tryAcquire().isEmpty());
    CompletableFuture<Guard> asking = ben.requestAny("any/0", "any/1").acquireAsync();
    awaitWaiting("any/0", 1);
    awaitWaiting("any/1", 1);
    long old = second.token();
    second.release();
    Guard third = asking.get(5, TimeUnit.SECONDS);
    assertEquals("any/1", third.name());
    assertTrue(third.token() > old);
    assertEquals(0, waiting("any/0"));
    third.check();
    third.release();
    first.release();
  }

  @Test
  void aSecondRequestUnderALeaseWaitsAndACancelledOneLeavesAllQueues() throws Exception {
    try (Lease lease = ana.lease(Duration.ofSeconds(15))) {
      Guard first = lease.lockAny("x", "y");
      Guard plain = lease.request("y").waitAtMost(Duration.ZERO).acquire();
      assertTrue(lease.requestAny("x", "y").tryAcquire().isEmpty());
      CompletableFuture<Guard> asking = lease.requestAny("x", "y").acquireAsync();
      long old = first.token();
      first.release();
      plain.release();
      Guard second = asking.get(5, TimeUnit.SECONDS);
      assertEquals("x", second.name());
      assertTrue(second.token() > old);
      second.release();

      Guard held = ben.request("x", "y").acquire();
      for (LockRequest request : List.of(ana.requestAny("x", "y"), lease.requestAny("x", "y"))) {
        CompletableFuture<Guard> cancelled = request.acquireAsync();
        awaitWaiting("y", 1);
        cancelled.cancel(true);
        awaitWaiting("x", 0);
        awaitWaiting("y", 0);
      }
      held.release();
      lease.requestAny("x", "y").waitAtMost(Duration.ofSeconds(5)).run(guard -> assertEquals("x", guard.name()));
    }
  }

  @Test
  void anySlotOfAPoolIsGrantedAlsoOneThatIsAdded() throws Exception {
    assertRefused("POOL_EMPTY", () -> ana.pool("gpu/").acquire());
    ana.resize("gpu/0", 1);
    Guard first = ana.pool("gpu/").acquire();
    assertEquals("gpu/0", first.name());
    assertEquals(0, first.slot().orElseThrow());
    assertTrue(ben.pool("gpu/").tryAcquire().isEmpty());
    assertRefused("WAIT_TIMEOUT", () -> ben.pool("gpu/").waitAtMost(Duration.ofMillis(50)).acquire());
    CompletableFuture<Guard> asking = ben.pool("gpu/").acquireAsync();
    awaitWaiting("gpu/0", 1);
    ana.resize("gpu/1", 2);
    Guard second = asking.get(5, TimeUnit.SECONDS);
    assertEquals("gpu/1", second.name());
    second.release();
    Guard both = ben.pool("gpu/").take(2).acquire();
    assertEquals(List.of("gpu/1", "gpu/1"), both.locks().stream().map(HeldLock::name).toList());
    CompletableFuture<Guard> last = ben.pool("gpu/").acquireAsync();
    awaitWaiting("gpu/0", 1);
    ana.resizeByRequests("gpu/0");
    ana.resizeByRequests("gpu/1");
    ExecutionException empty = assertThrows(ExecutionException.class, () -> last.get(5, TimeUnit.SECONDS));
    assertEquals("POOL_EMPTY", ((TenureException) empty.getCause()).reason());
    first.release();
    both.release();
  }

  @Test
  void badRequestsAreRefusedBeforeAnythingIsSent() {
    Map<LockRequest, String> cases = Map.of(
        ana.pool("gpu/").shared(), "INVALID_FIELD",
        ana.pool("gpu/").slots(2), "INVALID_FIELD",
        ana.pool("gpu/").take(0), "INVALID_FIELD",
        ana.pool(""), "INVALID_NAME",
        ana.requestAny(), "INVALID_FIELD",
        ana.requestAny("x", "x"), "DUPLICATE_LOCK");
    cases.forEach((request, reason) -> {
      assertEquals(reason, assertThrows(InvalidRequestException.class, request::acquire).reason());
    });
  }
}

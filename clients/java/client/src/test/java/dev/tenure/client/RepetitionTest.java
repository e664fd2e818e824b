package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.internal.Plant;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Requests whose answers are lost with their connection are repeated, and take effect once. */
@Timeout(60)
class RepetitionTest {
  private Server server;
  private Proxy proxy;
  private Client near;
  private Client far;

  @BeforeEach
  void start() throws Exception {
    server = Server.start(1);
    proxy = new Proxy(server.address());
    near = server.client("near");
    far = Client.builder().addresses(proxy.address()).name("far").connect();
  }

  @AfterEach
  void stop() throws Exception {
    Plant.select(null);
    far.close();
    near.close();
    proxy.close();
    server.close();
  }

  private interface Call<T> {
    T run() throws InterruptedException;
  }

  private static <T> CompletableFuture<T> start(Call<T> call) {
    return CompletableFuture.supplyAsync(() -> {
      try {
        return call.run();
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
    });
  }

  /** Writes a key; the answer is lost after the write has happened. Returns the version that the caller got. */
  private long writeWithLostAnswer() throws Exception {
    proxy.swallowAnswers();
    CompletableFuture<Long> put = start(() -> far.key("counter").put("one"));
    while (near.key("counter").get().isEmpty()) {
      Thread.sleep(5);
    }
    proxy.cut();
    return put.get(30, TimeUnit.SECONDS);
  }

  @Test
  void aWriteWhoseAnswerWasLostHappensOnce() throws Exception {
    assertEquals(1, writeWithLostAnswer());
    assertEquals(1, near.key("counter").get().orElseThrow().version());
  }

  @Test
  void aRepetitionWithoutItsIdIsCaught() throws Exception {
    Plant.select("retry_without_id");
    assertNotEquals(1, writeWithLostAnswer());
  }

  @Test
  void aGrantWhoseAnswerWasLostIsTheOneThatTheCallerGets() throws Exception {
    proxy.swallowAnswers();
    CompletableFuture<Guard> asked = start(() -> far.lock("x"));
    while (near.show("x").isEmpty()) {
      Thread.sleep(5);
    }
    long token = near.show("x").orElseThrow().holder().orElseThrow().token();
    proxy.cut();
    Guard guard = asked.get(30, TimeUnit.SECONDS);
    assertEquals(token, guard.token());
    guard.check();
    guard.release();
    assertTrue(near.show("x").isEmpty());
  }

  @Test
  void aWaiterKeepsItsPlaceOverABrokenConnection() throws Exception {
    Guard held = near.lock("x");
    CompletableFuture<Guard> first = far.lockAsync("x");
    while (near.show("x").orElseThrow().waiting() < 1) {
      Thread.sleep(5);
    }
    try (Client later = server.client("later")) {
      CompletableFuture<Guard> second = later.lockAsync("x");
      while (near.show("x").orElseThrow().waiting() < 2) {
        Thread.sleep(5);
      }
      proxy.cut();
      held.release();
      first.get(30, TimeUnit.SECONDS).release();
      second.get(30, TimeUnit.SECONDS).release();
    }
  }

  @Test
  void aLossThatTheMemberToldNobodyIsLearnedAfterReconnecting() throws Exception {
    Guard guard = far.request("x").ttl(Duration.ofSeconds(15)).acquire();
    proxy.swallowAnswers();
    near.force("x", guard.token(), "stuck");
    proxy.cut();
    Lost lost = guard.ended().get(30, TimeUnit.SECONDS);
    assertTrue(lost.cause() == Cause.FORCED || lost.cause() == Cause.GONE, lost.toString());
  }
}

package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Keys, watches and elections against a cluster of three members. */
@Timeout(30)
class StoreTest {
  private static Server server;
  private static Client client;

  @BeforeAll
  static void start() throws InterruptedException {
    server = Server.start(3);
    client = server.client("ana");
  }

  @AfterAll
  static void stop() {
    client.close();
    server.close();
  }

  @Test
  void keysAreComparedAndGuardedByALock() throws Exception {
    assertTrue(client.key("a").get().isEmpty());
    assertEquals(1, client.key("a").ifAbsent().put("1"));
    assertEquals("COMPARE_FAILED",
        assertThrows(RefusedException.class, () -> client.key("a").ifAbsent().put("2")).reason());
    KeyValue read = client.key("a").get().orElseThrow();
    assertEquals("1", read.text());
    assertEquals(2, client.key("a").ifModified(read.modified()).put("2"));
    byte[] binary = {(byte) 0xff, 0, 1};
    assertEquals(3, client.key("a").ifValue("2").put(binary));
    assertArrayEquals(binary, client.key("a").get().orElseThrow().bytes());
    assertTrue(client.key("a").delete());
    assertFalse(client.key("a").delete());

    Guard guard = client.lock("ledger");
    assertEquals(1, client.key("entry").guardedBy(guard).put("paid"));
    guard.release();
    assertEquals("GUARD_FAILED",
        assertThrows(RefusedException.class, () -> client.key("entry").guardedBy(guard).put("paid twice")).reason());
    assertEquals("paid", client.key("entry").get().orElseThrow().text());
  }

  @Test
  void aKeyEndsWithItsLease() throws Exception {
    try (Lease lease = client.lease(Duration.ofSeconds(5))) {
      client.key("alive").withLease(lease).put("yes");
    }
    assertTrue(client.key("alive").get().isEmpty());
  }

  @Test
  void aWatchTellsEveryChangeOnceAndInOrderAlsoFromThePast() throws Exception {
    try (Watch watch = client.watchPrefix("w/").start()) {
      client.key("w/1").put("a");
      client.key("other").put("b");
      client.key("w/2").put("c");
      client.key("w/1").delete();
      Watch.Batch first = watch.next();
      assertEquals("key_put", first.events().get(0).cause());
      assertEquals(Optional.of("a"), first.events().get(0).value());
      assertEquals("w/2", watch.next().events().get(0).name());
      assertEquals("key_deleted", watch.next().events().get(0).cause());
      assertTrue(watch.next(Duration.ofMillis(100)).isEmpty());
      try (Watch past = client.watch("w/1").from(first.revision()).start()) {
        assertEquals(first.revision(), past.next().revision());
        assertEquals("key_deleted", past.next().events().get(0).cause());
      }
    }
    Watch closed = client.watch("w/1").start();
    closed.close();
    assertThrows(ClosedException.class, closed::next);
  }

  @Test
  void anElectionHasOneLeaderAndObserversSeeEveryChange() throws Exception {
    Election election = client.election("billing");
    try (LeaderObserver seen = election.observe()) {
      assertEquals(Optional.empty(), seen.next());
      Leadership lead = election.campaign("10.0.0.5:9000");
      assertEquals("10.0.0.5:9000", seen.next().orElseThrow().text());
      assertEquals(lead.token(), election.leader().orElseThrow().token());
      lead.proclaim("10.0.0.5:9001");
      assertEquals("10.0.0.5:9001", seen.next().orElseThrow().text());
      assertThrows(RefusedException.class,
          () -> election.campaign("other", request -> request.waitAtMost(Duration.ofMillis(50))));
      lead.resign();
      assertEquals(Optional.empty(), seen.next());
    }
  }

  @Test
  void locksAreListedAndExplainedAndTicketsSigned() throws Exception {
    try (Guard guard = client.request("list/a").metadata("release 5.2").acquire()) {
      List<LockInfo> all = client.locks("list/");
      assertEquals(List.of("list/a"), all.stream().map(LockInfo::name).toList());
      Explanation explained = client.explain("list/a");
      assertEquals("ana", explained.lock().orElseThrow().holder().orElseThrow().client());
      assertTrue(explained.freeIfSilent().isPresent());
      assertEquals(3, guard.ticket().split("\\.").length);
      guard.update("release 5.3");
    }
  }

  @Test
  void theEnvironmentNamesTheCluster() throws Exception {
    try (Client other = Client.builder().fromEnv(Map.of("TENURE_ADDR", server.address())).connect()) {
      other.lock("env").close();
    }
    assertThrows(InvalidRequestException.class,
        () -> Client.builder().fromEnv(Map.of("TENURE_ADDR", "https://127.0.0.1:7450")).connect());
    assertThrows(InvalidRequestException.class, () -> Client.builder().apiKey("secret"));
    String key = "tenure_" + "0".repeat(16) + "_" + "0".repeat(64);
    InvalidRequestException plain = assertThrows(
        InvalidRequestException.class, () -> Client.builder().addresses("10.0.0.1:7450").apiKey(key).connect());
    assertTrue(plain.getMessage().contains("plain text"), plain.getMessage());
  }
}

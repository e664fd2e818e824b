package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.internal.Json;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** What operators and cautious programs read and end, against a real cluster. */
@Timeout(30)
class InspectTest {
  private static final Duration MINUTE = Duration.ofMinutes(1);
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

  private void awaitWaiting(String name, int count) throws InterruptedException {
    while (ana.show(name).map(LockInfo::waiting).orElse(0) != count) {
      Thread.sleep(5);
    }
  }

  @Test
  void anExplanationNamesTheWaitersAndTheirPlaces() throws Exception {
    assertTrue(ana.explain(lock).lock().isEmpty());
    Guard held = ana.request(lock).slots(4).take(4).minHold(Duration.ofMillis(1)).maxHold(MINUTE)
        .lockDelay(Duration.ofSeconds(1)).progressWithin(MINUTE).acquire();
    CompletableFuture<Guard> plain = ben.request(lock).slots(4).take(3).supersede("main").waitAtMost(MINUTE).acquireAsync();
    awaitWaiting(lock, 1);
    try (Lease lease = ben.lease(Duration.ofSeconds(15))) {
      CompletableFuture<Guard> urgent = lease.request(lock).slots(4).priority(3).acquireAsync();
      awaitWaiting(lock, 2);

      Explanation explained = ana.explain(lock);
      LockInfo shown = explained.lock().orElseThrow();
      Holder holder = shown.holder().orElseThrow();
      assertEquals(OptionalInt.of(4), shown.slots());
      assertEquals(Optional.of("slot"), holder.mode());
      assertEquals(Optional.of(held.lease()), holder.lease());
      assertEquals(Optional.of(MINUTE), holder.maxHold());
      assertEquals(Optional.of(Duration.ofMillis(1)), holder.minHold());
      assertEquals(Optional.of(Duration.ofSeconds(1)), holder.lockDelay());
      assertEquals(MINUTE, holder.progress().orElseThrow().within());
      assertTrue(holder.renewed().isPresent() && holder.left().isEmpty());
      assertTrue(explained.revision() > 0 && explained.own().isEmpty() && explained.drained().isEmpty());
      assertTrue(explained.freeAtLatest().isPresent() && explained.freeIfSilent().isEmpty());
      Waiter first = explained.ahead().get(0);
      Waiter second = explained.ahead().get(1);
      assertEquals(lease.id(), first.lease());
      assertEquals(List.of(3, 1), List.of(first.priority(), first.take()));
      assertEquals(Optional.empty(), first.left());
      assertEquals(List.of(0, 3, 1L), List.of(second.priority(), second.take(), second.ahead()));
      assertEquals("ben", second.client());
      assertEquals(List.of(lock), second.locks());
      assertEquals(OptionalInt.of(4), second.slots());
      assertEquals(Optional.of("main"), second.supersede());
      assertTrue(second.passable().compareTo(Duration.ZERO) > 0 && second.left().orElseThrow().compareTo(MINUTE) <= 0);
      assertEquals(List.of(new Explanation.ChainStep(lock, "ana", held.lease())), explained.chain());

      Explanation own = ana.explain(lock, second.lease());
      assertEquals(second.lease(), own.own().orElseThrow().lease());
      assertEquals(List.of(first.lease()), own.ahead().stream().map(Waiter::lease).toList());
      held.release();
      urgent.get(5, TimeUnit.SECONDS).release();
      plain.get(5, TimeUnit.SECONDS).release();
    }
  }

  @Test
  void aHoldGoesToTheWaiterThatAnExplanationNames() throws Exception {
    Guard held = ana.lock(lock);
    CompletableFuture<Guard> next = ben.lockAsync(lock);
    awaitWaiting(lock, 1);
    long token = held.handOn(ana.explain(lock).ahead().get(0).lease());
    try (Guard guard = next.get(5, TimeUnit.SECONDS)) {
      assertEquals(token, guard.token());
    }
  }

  @Test
  void anExplanationShowsTheClosedPrefixAndForWhatTheHolderWaits() throws Exception {
    try (Lease lease = ana.lease(Duration.ofSeconds(15)); Guard x = lease.request("db/x").acquire()) {
      Guard y = ben.lock("db/y");
      CompletableFuture<Guard> waits = lease.request("db/y").acquireAsync();
      awaitWaiting("db/y", 1);
      Explanation explained = ben.explain("db/x");
      assertEquals(List.of("db/x", "db/y"), explained.chain().stream().map(Explanation.ChainStep::lock).toList());
      assertTrue(explained.freeIfSilent().isPresent() && explained.freeAtLatest().isEmpty());
      y.release();
      waits.get(5, TimeUnit.SECONDS).release();
      ana.drain("db/", "new disks");
      Drain drained = ben.explain("db/x").drained().orElseThrow();
      assertEquals(List.of("db/", "ana", "new disks"),
          List.of(drained.prefix(), drained.by().orElseThrow(), drained.reason().orElseThrow()));
      ana.undrain("db/");
      x.check();
    }
  }

  @Test
  void anExplanationSaysThatTheTurnOfALockIsStillToCome() {
    assertEquals(Optional.empty(), Explanation.of(Json.object()).reopening());
    assertEquals(Optional.of(Duration.ofMillis(12)), Explanation.of(Json.object().put("reopening_ms", 12)).reopening());
  }

  @Test
  void theLeaseOfAnotherClientIsRevokedWithAndWithoutLettingItStopFirst() throws Exception {
    Guard held = ana.lock(lock);
    ben.revoke(held.lease(), "not needed");
    Lost lost = held.ended().get(5, TimeUnit.SECONDS);
    assertEquals(Lost.told(Cause.REVOKED, "ben", "not needed"), lost);
    // The holder has not said yet that its work has stopped.
    assertTrue(ben.tryLock(lock).isEmpty());
    assertThrows(LostException.class, held::close);
    ben.lock(lock).release();

    Guard again = ana.lock(lock);
    ben.revokeNow(again.lease(), "the machine is gone");
    try (Guard next = ben.tryLock(lock).orElseThrow()) {
      assertTrue(next.token() > again.token());
    }
    assertEquals(Optional.of("ben"), again.ended().get(5, TimeUnit.SECONDS).by());
    assertThrows(LostException.class, again::close);
    assertRefused("LEASE_NOT_FOUND", () -> ben.revoke(again.lease(), "again"));
    assertRefused("INVALID_FIELD", () -> ben.revoke("x", "no lease"));
  }

  @Test
  void aLockIsTakenAwayInTheNameOfAnOperator() throws Exception {
    Guard held = ana.lock(lock);
    Duration left = ben.force(lock, held.token(), "stuck", "kim");
    assertTrue(left.toMillis() > 0, left.toString());
    assertEquals(Lost.told(Cause.FORCED, "kim", "stuck"), held.ended().get(5, TimeUnit.SECONDS));
    assertThrows(LostException.class, held::close);
    Guard again = ana.lock(lock);
    ben.forceNow(lock, again.token(), "at once", "kim");
    assertEquals(Optional.of("kim"), again.ended().get(5, TimeUnit.SECONDS).by());
    assertThrows(LostException.class, again::close);
    Guard revoked = ana.lock(lock);
    ben.revoke(revoked.lease(), "not needed", "kim");
    assertEquals(Lost.told(Cause.REVOKED, "kim", "not needed"), revoked.ended().get(5, TimeUnit.SECONDS));
    assertThrows(LostException.class, revoked::close);
    Guard ended = ana.lock(lock);
    ben.revokeNow(ended.lease(), "at once", "kim");
    assertEquals(Optional.of("kim"), ended.ended().get(5, TimeUnit.SECONDS).by());
    assertThrows(LostException.class, ended::close);
  }

  @Test
  void theHistoryIsSearchedByTimeClientAndLoss() throws Exception {
    Instant began = Instant.now();
    ana.lock("past/x").release();
    Guard held = ana.lock("past/x");
    ben.force("past/x", held.token(), "stuck");
    held.ended().get(5, TimeUnit.SECONDS);
    assertThrows(LostException.class, held::close);
    ben.lock("past/x").release();

    List<String> whole = causes(ben.history("past/x"));
    assertEquals("granted", whole.get(0));
    assertEquals(List.of("forced"), causes(ben.history("past/x").lost()));
    assertEquals(List.of("granted", "released"), causes(ben.history("past/x").ofClient("be")));
    assertEquals(whole.subList(whole.size() - 1, whole.size()), causes(ben.history("past/x").limit(1)));
    Instant early = began.minus(MINUTE);
    assertEquals(whole, causes(ben.history("past/x").since(early).until(began.plus(MINUTE))));
    assertEquals(List.of(), causes(ben.history("past/x").until(early)));
    Past past = ben.historyPrefix("past/").lost().read();
    Event forced = past.batches().get(0).events().get(0);
    assertEquals(List.of(Optional.of("ben"), Optional.of("stuck")), List.of(forced.by(), forced.reason()));
    assertEquals(Optional.of(held.lease()), forced.lease());
    assertTrue(Duration.between(began, forced.at().orElseThrow()).abs().compareTo(MINUTE) < 0);
    assertTrue(past.archiveBegins().isPresent() && past.archiveBeginsAt().isPresent() && past.missing().isEmpty());
    assertRefused("INVALID_FIELD", () -> ben.history("past/x").limit(0));
    assertRefused("INVALID_FIELD", () -> ben.history("past/x").since(Instant.EPOCH.minusSeconds(1)));
    assertRefused("INVALID_NAME", () -> ben.history(""));
  }

  private static String page(String before, String holes, int... revisions) {
    String changes = IntStream.of(revisions)
        .mapToObj(it -> "{\"revision\":\"" + it + "\",\"events\":[]}")
        .collect(Collectors.joining(","));
    String next = before == null ? "" : ",\"before\":\"" + before + "\"";
    String archive = "{\"begins\":\"3\",\"begins_at\":\"2026-01-02T03:04:05Z\",\"holes\":[" + holes + "]}";
    return "{\"changes\":[" + changes + "]" + next + ",\"archive\":" + archive + "}";
  }

  @Test
  void aHistoryIsReadPageByPage() throws Exception {
    String early = "{\"from\":\"4\",\"next\":\"6\"}";
    String late = "{\"from\":\"6\",\"next\":\"7\"}";
    try (Proxy proxy = new Proxy(server.address()); Client far = Client.builder().addresses(proxy.address()).connect()) {
      proxy.answerSearches(page("8", early, 9, 8), page("6", early + "," + late, 7, 6), page(null, "", 3));
      Past past = far.history("past/x").limit(6).read();
      assertEquals(List.of(3L, 6L, 7L, 8L, 9L), past.batches().stream().map(Watch.Batch::revision).toList());
      assertEquals(List.of(new Past.Missing(4, 6), new Past.Missing(6, 7)), past.missing());
      assertEquals(Optional.of(3L), past.archiveBegins());
      String query = "view=history&archive=true&limit=";
      assertEquals(List.of(query + "6", query + "4&before=8", query + "2&before=6"), proxy.searches());
    }
  }

  @Test
  void aHistoryThatDoesNotAdvanceIsRefused() throws Exception {
    for (String next : List.of("8", "9", "10")) {
      try (Proxy proxy = new Proxy(server.address()); Client far = Client.builder().addresses(proxy.address()).connect()) {
        proxy.answerSearches(page("8", "", 8), page(next, "", 8), page(null, ""));
        TenureException refused = assertThrows(TenureException.class, () -> far.historyPrefix("past/").read());
        assertEquals("STRANGE_ANSWER", refused.reason());
      }
    }
  }

  private static List<String> causes(HistoryRequest search) throws InterruptedException {
    List<Watch.Batch> batches = search.read().batches();
    List<Long> revisions = batches.stream().map(Watch.Batch::revision).toList();
    assertEquals(revisions.stream().sorted().toList(), revisions);
    // Whether the last request has to queue depends on when the release before it arrives.
    return batches.stream().flatMap(it -> it.events().stream()).map(Event::cause).filter(it -> !it.equals("queued")).toList();
  }

  @Test
  void aWatchTellsThePreviousValueWhereItIsAskedTo() throws Exception {
    try (Watch watch = ana.watch(lock).withPrevious().start(); Watch plain = ana.watch(lock).start()) {
      ana.key(lock).put("v1");
      ana.key(lock).put("v2");
      assertEquals(Optional.empty(), watch.next().events().get(0).previous());
      assertEquals(Optional.of("v1"), watch.next().events().get(0).previous());
      plain.next();
      assertEquals(Optional.empty(), plain.next().events().get(0).previous());
    }
  }

  private static void assertRefused(String reason, Executable call) {
    TenureException refused = assertThrows(TenureException.class, call);
    assertEquals(List.of(reason, Effect.NONE), List.of(refused.reason(), refused.effect()));
  }
}

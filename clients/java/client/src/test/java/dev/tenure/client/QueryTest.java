package dev.tenure.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.tenure.client.Proxy.Answer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Queries over HTTP that members and proxies refuse. */
@Timeout(30)
class QueryTest {
  private static final Answer EMPTY = new Answer(200, "", "{\"changes\":[]}");
  private static Server server;
  private Proxy proxy;
  private Client client;

  @BeforeAll
  static void startServer() {
    server = Server.start(1);
  }

  @AfterAll
  static void stopServer() {
    server.close();
  }

  @BeforeEach
  void start() throws Exception {
    proxy = new Proxy(server.address());
    client = Client.builder().addresses(proxy.address()).timeout(Duration.ofSeconds(2)).connect();
  }

  @AfterEach
  void stop() throws Exception {
    client.close();
    proxy.close();
  }

  private static Answer refusal(int status, String reason, String more) {
    String error = "{\"error\":{\"reason\":\"" + reason + "\",\"message\":\"not now\",\"effect\":\"none\"" + more + "}}";
    return new Answer(status, "Content-Type: application/json\r\n", error);
  }

  private void ask() throws InterruptedException {
    client.history("past/x").read();
  }

  @Test
  void aQueryIsAskedAgainAfterTheTimeThatTheAnswerNames() throws Exception {
    Answer gateway = new Answer(502, "Retry-After: 1\r\n", "<html>");
    proxy.answerSearches(refusal(503, "OVERLOADED", ",\"retry_after_ms\":300"), gateway, EMPTY);
    ask();
    List<Long> asked = proxy.searchedAt();
    assertEquals(3, asked.size());
    assertTrue(asked.get(1) - asked.get(0) >= 300_000_000L, asked.toString());
    assertTrue(asked.get(2) - asked.get(1) >= 1_000_000_000L, asked.toString());
  }

  @Test
  void thePausesOfAQueryGrow() {
    proxy.answerSearches(refusal(503, "NO_LEADER", ""));
    UnavailableException failed = assertThrows(UnavailableException.class, this::ask);
    assertEquals("NO_LEADER", assertInstanceOf(RefusedException.class, failed.getCause()).reason());
    // With 20 ms in between it would be a hundred.
    int asked = proxy.searchedAt().size();
    assertTrue(asked >= 4 && asked <= 15, "asked " + asked + " times");
  }

  @Test
  void aQueryThatMembersRefuseForNowFailsWithTheRefusalThatSaysWhy() {
    Answer noLeader = refusal(503, "NO_LEADER", "");
    proxy.answerSearches(noLeader, refusal(503, "OVERLOADED", ",\"next\":\"use more members\""), noLeader);
    RefusedException refused = assertThrows(RefusedException.class, this::ask);
    assertEquals("OVERLOADED", refused.reason());
    assertEquals(Optional.of("use more members"), refused.next());
    assertTrue(proxy.searchedAt().size() >= 3);
  }

  @Test
  void aQueryDoesNotWaitForLongerThanItsCaller() {
    proxy.answerSearches(refusal(429, "QUOTA", ",\"retry_after_ms\":60000"));
    long began = System.nanoTime();
    RefusedException refused = assertThrows(RefusedException.class, this::ask);
    assertEquals("QUOTA", refused.reason());
    assertEquals(Optional.of(Duration.ofMinutes(1)), refused.retryAfter());
    assertEquals(1, proxy.searchedAt().size());
    assertTrue(System.nanoTime() - began < 1_500_000_000L);
  }

  @Test
  void anAnswerThatRepeatingDoesNotHelpIsFinal() {
    proxy.answerSearches(refusal(403, "PERMISSION_DENIED", ",\"next\":\"ask for the verb read\""));
    RefusedException refused = assertThrows(RefusedException.class, this::ask);
    assertEquals("PERMISSION_DENIED", refused.reason());
    assertEquals(Optional.of("ask for the verb read"), refused.next());
    assertEquals(1, proxy.searchedAt().size());
  }

  @Test
  void anAnswerThatIsNotUnderstoodIsNotAskedForAgain() throws Exception {
    for (Answer strange : List.of(new Answer(404, "", "<html>"), new Answer(500, "", "{\"error\":{}}"), new Answer(200, "", "{"))) {
      try (Proxy road = new Proxy(server.address()); Client far = Client.builder().addresses(road.address()).connect()) {
        road.answerSearches(strange);
        TenureException failed = assertThrows(TenureException.class, () -> far.history("past/x").read());
        assertEquals("STRANGE_ANSWER", failed.reason());
        assertEquals(1, road.searchedAt().size());
      }
    }
  }
}

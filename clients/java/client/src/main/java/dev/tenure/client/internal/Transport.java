package dev.tenure.client.internal;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.WebSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Makes connections to members, with the client's trust and credentials. Used on the loop only. */
final class Transport {
  /** How long connecting to a member may take, with its welcome. */
  static final Duration DIAL = Duration.ofSeconds(2);

  private final Settings settings;
  private final ThreadPoolExecutor executor;
  private HttpClient http;
  private String stamp;

  Transport(Settings settings) throws IOException, GeneralSecurityException {
    this.settings = settings;
    AtomicInteger made = new AtomicInteger();
    // The threads of the JDK's HTTP client only hand over bytes; they end when there is nothing to do.
    executor = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
      Thread thread = new Thread(task, "tenure-io-" + made.incrementAndGet());
      thread.setDaemon(true);
      return thread;
    });
    http();
  }

  /** Returns the HTTP client. It is made anew when a file of the TLS settings has changed. */
  private HttpClient http() throws IOException, GeneralSecurityException {
    String newest = stamp(settings.ca()) + stamp(settings.certificate()) + stamp(settings.key());
    if (http == null || !newest.equals(stamp)) {
      HttpClient.Builder builder =
          HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(DIAL).executor(executor);
      if (settings.underTls()) {
        builder.sslContext(Tls.context(settings.ca(), settings.certificate(), settings.key()));
      }
      http = builder.build();
      stamp = newest;
    }
    return http;
  }

  private static String stamp(Path path) throws IOException {
    return path == null ? "-" : Files.getLastModifiedTime(path).toMillis() + "/" + Files.size(path) + " ";
  }

  WebSocket.Builder webSocket(String address) throws IOException, GeneralSecurityException {
    checkCredentials(address);
    WebSocket.Builder builder = http().newWebSocketBuilder().connectTimeout(DIAL);
    settings.credentials().authorization().ifPresent(value -> builder.header("Authorization", value));
    return builder;
  }

  URI sessionUri(String address) {
    return URI.create((settings.underTls() ? "wss://" : "ws://") + address + "/v1/ws");
  }

  HttpRequest.Builder request(String address, String pathAndQuery) throws IOException {
    checkCredentials(address);
    URI uri = URI.create((settings.underTls() ? "https://" : "http://") + address + pathAndQuery);
    HttpRequest.Builder builder = HttpRequest.newBuilder(uri);
    settings.credentials().authorization().ifPresent(value -> builder.header("Authorization", value));
    return builder;
  }

  HttpClient client() throws IOException, GeneralSecurityException {
    return http();
  }

  private void checkCredentials(String address) throws IOException {
    if (!settings.mayGoTo(address)) {
      throw new IOException("credentials are not sent to " + address + " in plain text: use TLS");
    }
  }
}

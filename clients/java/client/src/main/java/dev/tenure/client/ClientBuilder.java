package dev.tenure.client;

import dev.tenure.client.internal.Core;
import dev.tenure.client.internal.Credentials;
import dev.tenure.client.internal.Futures;
import dev.tenure.client.internal.LeaseTiming;
import dev.tenure.client.internal.Settings;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/** The settings of a client. Nothing is connected until {@link #connect} is called. */
public final class ClientBuilder {
  private static final String LOOPBACK = "127.0.0.1:7450";

  private final List<String> addresses = new ArrayList<>();
  private String name = ownName();
  private Duration timeout = Duration.ofSeconds(10);
  private Duration ttl = Duration.ofSeconds(15);
  private Duration window;
  private Duration grace = Duration.ZERO;
  private Path ca;
  private Path certificate;
  private Path key;
  private Credentials credentials = Credentials.none();
  private boolean insecureCredentials;
  private Supplier<String> traceparent;

  ClientBuilder() {}

  /**
   * Adds addresses of members. Two or three suffice: the client learns of the others.
   *
   * @param addresses {@code host:port}, with commas between; {@code https://} before it demands TLS
   * @return this builder
   */
  public ClientBuilder addresses(String addresses) {
    for (String address : addresses.split(",")) {
      if (!address.isBlank()) {
        this.addresses.add(address.strip());
      }
    }
    return this;
  }

  /**
   * Sets the client's name, which others see. Otherwise it is made of program, host and process.
   *
   * @param name the name
   * @return this builder
   */
  public ClientBuilder name(String name) {
    this.name = name;
    return this;
  }

  /**
   * Sets how long every request may take, also those that clean up.
   *
   * @param timeout the time; 10 s unless this is called
   * @return this builder
   */
  public ClientBuilder timeout(Duration timeout) {
    this.timeout = timeout;
    return this;
  }

  /**
   * Sets the ttl of leases that name none.
   *
   * @param ttl the ttl; 15 s unless this is called
   * @return this builder
   */
  public ClientBuilder ttl(Duration ttl) {
    this.ttl = ttl;
    return this;
  }

  /**
   * Sets how long leases are relied on after a renewal, instead of half of their ttl.
   *
   * @param window the time
   * @return this builder
   */
  public ClientBuilder window(Duration window) {
    this.window = window;
    return this;
  }

  /**
   * Declares how long work takes to stop once it is told to.
   *
   * @param grace the time
   * @return this builder
   */
  public ClientBuilder grace(Duration grace) {
    this.grace = grace;
    return this;
  }

  /**
   * Demands TLS with every member, under certificates that this authority signed.
   *
   * @param ca the file with the authority's certificate, PEM; it is read again when it changes
   * @return this builder
   */
  public ClientBuilder ca(Path ca) {
    this.ca = ca;
    return this;
  }

  /**
   * Sets the client's own certificate, for members that want one.
   *
   * @param certificate the file with the certificate, PEM
   * @param key the file with its key, PKCS#8 in PEM
   * @return this builder
   */
  public ClientBuilder identity(Path certificate, Path key) {
    this.certificate = certificate;
    this.key = key;
    return this;
  }

  /**
   * Proves who the client is by an API key.
   *
   * @param key the key
   * @return this builder
   * @throws InvalidRequestException if it has not the form of one
   */
  public ClientBuilder apiKey(String key) {
    this.credentials = Credentials.apiKey(key);
    return this;
  }

  /**
   * Proves who the client is by a token in a file, which is read again for every connection.
   *
   * @param path the file
   * @return this builder
   */
  public ClientBuilder tokenFile(Path path) {
    this.credentials = Credentials.tokenFile(path);
    return this;
  }

  /**
   * Lets credentials leave this machine in plain text. Without it they go out only under TLS and on loopback.
   *
   * @param insecure whether they may
   * @return this builder
   */
  public ClientBuilder insecureCredentials(boolean insecure) {
    this.insecureCredentials = insecure;
    return this;
  }

  /**
   * Sends the caller's span with each request, for members that export traces. Requests of the client itself, such as
   * renewals, have none.
   *
   * @param traceparent returns the span of the calling thread in the form of the W3C header {@code traceparent}, or null;
   *     it is called in the thread that makes the request
   * @return this builder
   */
  public ClientBuilder traceparent(Supplier<String> traceparent) {
    this.traceparent = traceparent;
    return this;
  }

  /**
   * Takes from the environment what it says, as {@link Client#fromEnv} does.
   *
   * @return this builder
   * @throws InvalidRequestException if a file that a variable names cannot be read
   */
  public ClientBuilder fromEnv() {
    return fromEnv(System.getenv());
  }

  ClientBuilder fromEnv(Map<String, String> env) {
    addresses(env.getOrDefault("TENURE_ADDR", ""));
    file(env, "TENURE_CA").ifPresent(this::ca);
    if (file(env, "TENURE_CERT").isPresent() && file(env, "TENURE_KEY").isPresent()) {
      identity(file(env, "TENURE_CERT").get(), file(env, "TENURE_KEY").get());
    }
    String given = env.getOrDefault("TENURE_API_KEY", "");
    if (!given.isEmpty()) {
      return apiKey(given);
    }
    Optional<Path> keyFile = file(env, "TENURE_API_KEY_FILE");
    if (keyFile.isPresent()) {
      try {
        return apiKey(Files.readString(keyFile.get()));
      } catch (IOException error) {
        throw new InvalidRequestException("CONFIG", "cannot read " + keyFile.get() + ": " + error.getMessage());
      }
    }
    file(env, "TENURE_TOKEN_FILE").ifPresent(this::tokenFile);
    return this;
  }

  private static Optional<Path> file(Map<String, String> env, String name) {
    String value = env.getOrDefault(name, "");
    return value.isEmpty() ? Optional.empty() : Optional.of(Path.of(value));
  }

  /**
   * Connects to the cluster.
   *
   * @return the client
   * @throws InterruptedException if the thread is interrupted
   * @throws UnavailableException if no member could be reached within the timeout
   * @throws RefusedException if members refuse the credentials
   * @throws InvalidRequestException if the settings do not fit each other; nothing was dialled then
   */
  public Client connect() throws InterruptedException {
    Settings settings = settings();
    Core core;
    try {
      core = Core.start(settings);
    } catch (IOException | GeneralSecurityException error) {
      throw new InvalidRequestException("CONFIG", "the client cannot be set up: " + error.getMessage());
    }
    try {
      Futures.await(core.connected(), core::stop);
    } catch (TenureException error) {
      core.stop();
      throw error;
    }
    return new Client(core);
  }

  private Settings settings() {
    // Times that do not fit are refused here, and not at the first lock.
    LeaseTiming timing = LeaseTiming.of(ttl);
    timing = window == null ? timing : timing.withWindow(window);
    timing.stopWithin(grace);
    List<String> bare = new ArrayList<>();
    for (String address : addresses.isEmpty() ? List.of(LOOPBACK) : addresses) {
      bare.add(bare(address));
    }
    Settings settings = new Settings(
        List.copyOf(bare), name, timeout, ttl, window, grace, ca, certificate, key, credentials, insecureCredentials,
        traceparent);
    for (String address : bare) {
      if (!settings.mayGoTo(address)) {
        throw new InvalidRequestException("CONFIG", "credentials are not sent to " + address + " in plain text: use TLS");
      }
    }
    return settings;
  }

  /** All sessions use TLS or none does. */
  private String bare(String address) {
    boolean wantsTls = address.startsWith("https://");
    boolean wantsPlain = address.startsWith("http://");
    if (wantsTls && ca == null) {
      throw new InvalidRequestException("CONFIG", address + " needs an authority: TENURE_CA or ca(…)");
    }
    if (wantsPlain && ca != null) {
      throw new InvalidRequestException("CONFIG", address + " is in plain text, but an authority is set");
    }
    String bare = wantsTls ? address.substring(8) : wantsPlain ? address.substring(7) : address;
    if (!bare.matches("(\\[[0-9A-Fa-f:.]+\\]|[^:/\\[\\]\\s]+):\\d{1,5}")) {
      throw new InvalidRequestException("CONFIG", "`" + address + "` is no address: host:port is");
    }
    return bare;
  }

  private static String ownName() {
    ProcessHandle process = ProcessHandle.current();
    String program = process.info().command().map(it -> Path.of(it).getFileName().toString()).orElse("java");
    String host;
    try {
      host = InetAddress.getLocalHost().getHostName();
    } catch (UnknownHostException nameless) {
      host = "unnamed";
    }
    return program + "@" + host + "/" + process.pid();
  }
}

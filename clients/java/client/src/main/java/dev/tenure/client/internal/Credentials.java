package dev.tenure.client.internal;

import dev.tenure.client.InvalidRequestException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.regex.Pattern;

/**
 * What proves who the client is: an API key, or a token in a file, which is read anew for every connection because those
 * who issue short-lived tokens replace the file.
 */
public final class Credentials {
  private static final Pattern API_KEY = Pattern.compile("tenure_[0-9a-f]{16}_[0-9a-f]{64}");
  private static final Pattern GRAPHIC = Pattern.compile("[!-~]{1,8192}");

  private final String apiKey;
  private final Path tokenFile;

  private Credentials(String apiKey, Path tokenFile) {
    this.apiKey = apiKey;
    this.tokenFile = tokenFile;
  }

  public static Credentials none() {
    return new Credentials(null, null);
  }

  public static Credentials apiKey(String key) {
    String trimmed = key.strip();
    if (!API_KEY.matcher(trimmed).matches()) {
      String form = "`tenure_`, 16 hexadecimal digits, `_` and 64 more";
      throw new InvalidRequestException("INVALID_FIELD", "it is no API key: those are " + form);
    }
    return new Credentials(trimmed, null);
  }

  public static Credentials tokenFile(Path path) {
    return new Credentials(null, path);
  }

  boolean isNone() {
    return apiKey == null && tokenFile == null;
  }

  /** Returns the value of the header; nothing without credentials. */
  Optional<String> authorization() throws IOException {
    if (apiKey != null) {
      return Optional.of("Bearer " + apiKey);
    }
    if (tokenFile == null) {
      return Optional.empty();
    }
    String token = Files.readString(tokenFile).strip();
    if (!GRAPHIC.matcher(token).matches()) {
      throw new IOException("there is no token in " + tokenFile);
    }
    return Optional.of("Bearer " + token);
  }
}

package dev.tenure.client;

import java.util.Optional;

/**
 * The request was sent, and its outcome is not known: it may have taken effect. A lock that was perhaps granted is given
 * back in the background.
 */
public final class UnknownOutcomeException extends TenureException {
  private static final long serialVersionUID = 1L;

  /** The id under which the request can be repeated. */
  private final String requestId;

  /**
   * Creates the exception.
   *
   * @param reason the stable word
   * @param message what was waited for
   * @param requestId the id under which the request can be repeated; null if it cannot
   */
  public UnknownOutcomeException(String reason, String message, String requestId) {
    super(reason, Effect.UNKNOWN, message);
    this.requestId = requestId;
  }

  /**
   * Returns the id under which the request can be repeated and takes effect once: see {@link Key#again}.
   *
   * @return the id, if the request can be repeated
   */
  public Optional<String> requestId() {
    return Optional.ofNullable(requestId);
  }

  @Override
  public boolean retryable() {
    return false;
  }
}

package dev.tenure.client;

/** Whether a request that did not succeed may have taken effect. */
public enum Effect {
  /** It did not happen and will not. */
  NONE,
  /** It may have happened, or may still. */
  UNKNOWN
}

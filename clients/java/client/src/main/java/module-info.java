/** The Java client of Tenure: locks, leases, elections, keys and watches. */
module dev.tenure.client {
  requires com.fasterxml.jackson.databind;
  requires java.net.http;

  exports dev.tenure.client;
}

/** A ShedLock {@code LockProvider} that keeps its locks in a Tenure cluster. */
package dev.tenure.shedlock;

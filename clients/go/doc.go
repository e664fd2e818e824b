// Package tenure is the client of Tenure, a distributed lock service. It renews leases, stops work before a lock passes
// on, and hands out fencing tokens.
//
//	client, err := tenure.FromEnv(ctx)
//	…
//	err = client.Do(ctx, "deploy", func(ctx context.Context, guard *tenure.Guard) error {
//		return migrate(ctx, guard.Token()) // ctx ends before another client can hold the lock
//	})
//
// A lease counts from the clock reading before its newest acknowledged renewal was sent. Half a ttl after that the
// guard is lost: [Guard.Check] fails, [Guard.Context] is cancelled with a [*LostError] as its cause, and [Client.Do] does
// not report success. A loss is final. Because the cluster counts the whole ttl, and from a later moment, the client
// stops first, as long as clock rates differ by less than a third.
//
// Releasing a guard declares that the work under it has stopped.
//
// Every error implements [Error], which says whether the request may have taken effect.
package tenure

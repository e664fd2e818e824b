module github.com/tenure-lock/tenure/clients/go/internal/singlewriter

go 1.23.0

require (
	github.com/lib/pq v1.10.9
	github.com/tenure-lock/tenure/clients/go v0.1.0
)

require (
	github.com/coder/websocket v1.8.15 // indirect
	golang.org/x/sys v0.35.0 // indirect
)

replace github.com/tenure-lock/tenure/clients/go => ../..

module github.com/tenure-lock/tenure/clients/go

go 1.23.0

require (
	github.com/coder/websocket v1.8.15
	golang.org/x/sys v0.35.0
)

package etcdserver

import (
	"sync"
	_ "unsafe" // for go:linkname

	_ "go.etcd.io/etcd/client/v3" // has the channel
)

// neverDone is a channel of etcd's client that is never closed: contexts of watches wait for it. It exists before any bubble of testing/synctest, so that a wait
// for it is not durable, and virtual time would stop. Without a channel no goroutine waits, which means the same.
//
//go:linkname neverDone go.etcd.io/etcd/client/v3.valCtxCh
var neverDone chan struct{}

var once sync.Once // to set it

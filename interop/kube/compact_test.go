package kube

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// second starts an API server more on the same etcd, until the test ends, and returns a client of it.
func (c *cluster) second(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	other := &cluster{t: t, dir: c.dir, etcd: c.etcd, address: c.address, port: freePort(t), users: c.users, more: c.more}
	other.serve()
	var err error
	other.client, err = kubernetes.NewForConfig(&rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", other.port), BearerToken: c.users[0].token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.path("certs/apiserver.crt")},
	})
	if err != nil {
		t.Fatal(err)
	}
	other.ready()
	return other.client
}

// store is a client of the cluster's etcd, until the test ends.
func (c *cluster) store(t tb) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcd}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // whatever was asked has been answered
	return client
}

// forget lets etcd forget every revision but the last one.
func (c *cluster) forget(t testing.TB) {
	t.Helper()
	client := c.store(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last, err := client.Get(ctx, "no such key")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, last.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// Command client turns a Typha connection into lines: the real sync client of Felix v3.31.0, with every update it decodes
// written as {"key":…,"value":…}, every deletion as {"key":…,"deleted":true} and every status as {"status":…}, keys and
// values in the datastore's own form.
// Invariant: a line stands for something Calico's own types understood; what they did not is on standard error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/typha/pkg/discovery"
	"github.com/projectcalico/calico/typha/pkg/syncclient"
	"github.com/projectcalico/calico/typha/pkg/syncproto"
)

type line struct {
	Key     string `json:"key,omitempty"`
	Value   string `json:"value,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	Status  string `json:"status,omitempty"`
}

// printer writes and flushes: the reader waits for lines.
type printer struct{ out *bufio.Writer }

func (p printer) print(l line) {
	if err := json.NewEncoder(p.out).Encode(l); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// OnStatusUpdated implements Calico's interface.
func (p printer) OnStatusUpdated(status api.SyncStatus) {
	p.print(line{Status: map[api.SyncStatus]string{
		api.WaitForDatastore: "wait-for-ready", api.ResyncInProgress: "resync", api.InSync: "in-sync",
	}[status]})
	p.out.Flush()
}

// OnUpdates implements Calico's interface.
func (p printer) OnUpdates(updates []api.Update) {
	for _, u := range updates {
		s, err := syncproto.SerializeUpdate(u)
		if err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			continue
		}
		p.print(line{Key: s.Key, Value: string(s.Value), Deleted: s.Value == nil})
	}
	p.out.Flush()
}

func main() {
	options := &syncclient.Options{}
	addr := flag.String("server", "127.0.0.1:5473", "the server")
	syncer := flag.String("syncer", string(syncproto.SyncerTypeFelix), "the syncer type to ask for")
	host := flag.String("hostname", "peer", "the name to give in the hello")
	flag.DurationVar(&options.ReadTimeout, "read-timeout", 30*time.Second, "how long the server may say nothing")
	flag.BoolVar(&options.DisableDecoderRestart, "plain", false, "neither snappy nor a change of decoder")
	flag.StringVar(&options.CertFile, "cert", "", "certificate; with it, TLS")
	flag.StringVar(&options.KeyFile, "key", "", "key of the certificate")
	flag.StringVar(&options.CAFile, "ca", "", "certificate authority of the server")
	flag.StringVar(&options.ServerCN, "server-cn", "", "common name the server must have")
	flag.StringVar(&options.ServerURISAN, "server-uri", "", "URI the server must have")
	flag.Parse()
	options.SyncerType = syncproto.SyncerType(*syncer)
	logrus.SetLevel(logrus.WarnLevel)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	p := printer{bufio.NewWriterSize(os.Stdout, 1<<16)}
	c := syncclient.New(discovery.New(discovery.WithAddrOverride(*addr)), "v3.31.0", *host, "peer", p, options)
	if err := c.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	c.Finished.Wait()
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "client: the connection is lost")
		os.Exit(1)
	}
}

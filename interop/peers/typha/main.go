// Command typha turns a stream of datastore entries on its standard input into what the real Typha v3.31.0 serves: Typha's
// own snapshot cache and sync server, without a datastore behind them.
//
// Input, one JSON object per line: {"key":…,"value":…} with the value as a string, {"key":…,"deleted":true},
// {"status":"resync"} and {"status":"in-sync"}. The first line of its output is the port it listens on, alone.
// Invariant: what it serves has gone through Calico's own types, so a value the real Typha would not send is never sent.
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

	"github.com/sirupsen/logrus"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/typha/pkg/calc"
	"github.com/projectcalico/calico/typha/pkg/snapcache"
	"github.com/projectcalico/calico/typha/pkg/syncproto"
	"github.com/projectcalico/calico/typha/pkg/syncserver"
)

type line struct {
	Key, Value, Status string
	Deleted            bool
}

func main() {
	var config syncserver.Config
	syncer := flag.String("syncer", string(syncproto.SyncerTypeFelix), "the syncer type that is served")
	flag.IntVar(&config.Port, "port", 0, "TCP port; 0 takes a free one")
	flag.StringVar(&config.CertFile, "cert", "", "certificate; with it, TLS")
	flag.StringVar(&config.KeyFile, "key", "", "key of the certificate")
	flag.StringVar(&config.CAFile, "ca", "", "certificate authority of the clients")
	flag.StringVar(&config.ClientCN, "client-cn", "", "common name the clients must have")
	flag.StringVar(&config.ClientURISAN, "client-uri", "", "URI the clients must have")
	flag.Parse()
	logrus.SetLevel(logrus.WarnLevel)
	config.Host, config.MaxConns = "127.0.0.1", 10_000
	if config.Port == 0 {
		config.Port = syncserver.PortRandom
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cache := snapcache.New(snapcache.Config{Name: *syncer})
	decoupled := calc.NewSyncerCallbacksDecoupler()
	go decoupled.SendToContext(ctx, cache)
	cache.Start(ctx)
	server := syncserver.New(map[syncproto.SyncerType]syncserver.BreadcrumbProvider{syncproto.SyncerType(*syncer): cache}, config)
	server.Start(ctx)
	fmt.Println(server.Port())
	go func() {
		if err := feed(calc.NewValidationFilter(decoupled)); err != nil {
			fmt.Fprintln(os.Stderr, "typha:", err)
			os.Exit(1)
		}
	}()
	<-ctx.Done()
}

// feed reads entries until the input ends; the server continues.
func feed(sink api.SyncerCallbacks) error {
	known := map[string]bool{}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return fmt.Errorf("%q: %w", in.Text(), err)
		}
		switch {
		case l.Status == "resync":
			sink.OnStatusUpdated(api.ResyncInProgress)
		case l.Status == "in-sync":
			sink.OnStatusUpdated(api.InSync)
		case l.Key != "":
			u, err := update(l, known)
			if err != nil {
				return err
			}
			sink.OnUpdates([]api.Update{u})
		default:
			return fmt.Errorf("%q says nothing", in.Text())
		}
	}
	return in.Err()
}

func update(l line, known map[string]bool) (u api.Update, err error) {
	if u.Key = model.KeyFromDefaultPath(l.Key); u.Key == nil {
		return u, fmt.Errorf("Calico has no key %q", l.Key)
	}
	u.UpdateType = api.UpdateTypeKVNew
	switch {
	case l.Deleted:
		u.UpdateType = api.UpdateTypeKVDeleted
		delete(known, l.Key)
		return u, nil
	case known[l.Key]:
		u.UpdateType = api.UpdateTypeKVUpdated
	}
	known[l.Key] = true
	u.Revision = "1"
	if u.Value, err = model.ParseValue(u.Key, []byte(l.Value)); err != nil {
		return u, fmt.Errorf("%s: %w", l.Key, err)
	}
	return u, nil
}

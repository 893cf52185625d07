package typha

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// servers returns the servers to connect to, in the order of attempts.
func (c *Config) servers(ctx context.Context) ([]string, error) {
	if c.Discover != nil {
		list, err := c.Discover(ctx)
		if err == nil && len(list) == 0 {
			err = errors.New("no server address is known yet")
		}
		return list, err
	}
	var out []string
	for _, a := range c.Addrs {
		out = append(out, withPort(a))
	}
	var err error
	if c.Service != "" {
		var found []string
		found, err = c.lookUp(ctx)
		out = append(out, found...)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	if len(out) > 0 {
		err = nil
	}
	return out, err
}

// lookUp resolves the Service. A headless Service resolves to its servers, any other one to its cluster IP.
func (c *Config) lookUp(ctx context.Context) ([]string, error) {
	name, port := c.Service, strconv.Itoa(wire.Port)
	namespace, short, isService := strings.Cut(name, "/")
	if isService {
		name = short + "." + namespace + ".svc"
	} else if host, p, err := net.SplitHostPort(name); err == nil {
		name, port = host, p
	}
	addrs, err := c.lookupHost(ctx, name)
	if err != nil {
		env := strings.ToUpper(strings.ReplaceAll(short, "-", "_")) + "_SERVICE_"
		host := os.Getenv(env + "HOST")
		if !isService || host == "" {
			return nil, fmt.Errorf("look up %s: %w", c.Service, err)
		}
		if p := os.Getenv(env + "PORT"); p != "" {
			port = p
		}
		addrs = []string{host}
	}
	var out []string
	for _, a := range addrs {
		out = append(out, net.JoinHostPort(a, port))
	}
	return out, nil
}

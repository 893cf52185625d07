package flags

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	extgrpc "github.com/contiv-agent/contiv-agent/plugins/extconfig/grpc"
)

// GRPC configure the gRPC API for other programs.
type GRPC struct {
	tcp, unix     string
	cert, key, ca string
	insecure      bool
	file          string
}

// AddFlags adds the flags to a command.
func (f *GRPC) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.tcp, "grpc-listen", "", "address on which other programs send configuration by gRPC (host:port; Contiv's port is 9111); without certificates it must be a loopback address")
	fs.StringVar(&f.unix, "grpc-socket", "", "unix socket for the same, for programs of the same user; auto: /run/contiv-agent/grpc.sock, or contiv-agent/ in $XDG_RUNTIME_DIR or the cache folder for other users than root")
	fs.StringVar(&f.cert, "grpc-cert", "", "file with the certificate for --grpc-listen; needs --grpc-key and --grpc-ca")
	fs.StringVar(&f.key, "grpc-key", "", "file with its private key")
	fs.StringVar(&f.ca, "grpc-ca", "", "file with the authorities that sign the programs' certificates")
	fs.BoolVar(&f.insecure, "grpc-insecure", false, "allow any --grpc-listen address without certificates: everyone who reaches it programs VPP")
	fs.StringVar(&f.file, "grpc-db", "/var/bolt/grpc.db", "Bolt file with the programs' desired state, for the next start; empty: memory only")
}

// Source returns the server, or nil without --grpc-listen and --grpc-socket.
func (f *GRPC) Source(log *slog.Logger) ([]controller.ExternalConfigSource, error) {
	certs := 0
	for _, file := range []string{f.cert, f.key, f.ca} {
		if file != "" {
			certs++
		}
	}
	switch {
	case certs != 0 && certs != 3:
		return nil, exit.Usage(errors.New("--grpc-cert, --grpc-key and --grpc-ca need each other"))
	case f.tcp == "" && (certs != 0 || f.insecure):
		return nil, exit.Usage(errors.New("--grpc-cert and --grpc-insecure need --grpc-listen"))
	case certs != 0 && f.insecure:
		return nil, exit.Usage(errors.New("--grpc-insecure: conflicts with --grpc-cert; give one of them"))
	case f.tcp == "" && f.unix == "":
		return nil, nil
	}
	cfg := extgrpc.Config{TCP: f.tcp, Unix: GRPCSocket(f.unix), Plaintext: f.insecure, File: f.file, Logger: log}
	if certs == 3 {
		var err error
		if cfg.TLS, err = extgrpc.LoadTLS(f.cert, f.key, f.ca); err != nil {
			return nil, fmt.Errorf("grpc: %w", err)
		}
	}
	server, err := extgrpc.New(cfg)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return []controller.ExternalConfigSource{server}, nil
}

package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// compileProgram builds a program: static, without symbols and paths of this machine, for any processor of the architecture, and with the commit.
func (c *Config) compileProgram(ctx context.Context, program, arch, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X main.version="+c.Version, "-o", file, "./cmd/"+program)
	cmd.Dir = c.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

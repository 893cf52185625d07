package felix

import (
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/calico/felix/message"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// BenchmarkDecode decodes a set of 100,000 members and 10,000 policies from memory: with the driver's decoder and with
// protobuf's.
func BenchmarkDecode(b *testing.B) {
	var payloads [][]byte
	size := 0
	for _, m := range large() {
		payload, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		payloads = append(payloads, payload)
		size += len(payload)
	}
	keep := make([]*pb.ToDataplane, len(payloads))
	run := func(name string, decode func([]byte) *pb.ToDataplane) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				for i, payload := range payloads {
					if keep[i] = decode(payload); keep[i] == nil {
						b.Fatal(io.ErrUnexpectedEOF)
					}
				}
			}
		})
	}
	d := message.NewDecoder()
	run("driver", func(payload []byte) *pb.ToDataplane {
		messages, err := d.Decode(payload)
		if err != nil {
			return nil
		}
		return messages[0]
	})
	run("protobuf", func(payload []byte) *pb.ToDataplane {
		m := &pb.ToDataplane{}
		if proto.Unmarshal(payload, m) != nil {
			return nil
		}
		return m
	})
}

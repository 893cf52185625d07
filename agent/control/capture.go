package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

// captures are the running captures, by the identifiers that their clients chose. Closing the channel ends the capture.
type captures struct{ byID sync.Map }

// answerTime is the time in which the answer to a capture that has ended must be sent.
const answerTime = time.Minute

// stopTime is how long a client that could not stop its capture waits for the answer.
const stopTime = time.Second

// serveCapture answers with a pcap file when the capture has ended. The limits of the server for requests do not apply: without them a client that
// disconnects ends the capture nevertheless.
func (s *Server) serveCapture(w http.ResponseWriter, r *http.Request, running *captures) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	l, err := parseLimits(r.URL.Query())
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Now().Add(l.Time+answerTime))); err != nil {
		fail(http.StatusInternalServerError, err)
		return
	}
	stop, id := make(chan struct{}), r.URL.Query().Get("id")
	if _, taken := running.byID.LoadOrStore(id, stop); taken {
		fail(http.StatusConflict, fmt.Errorf("id %q: a capture with this id runs", id))
		return
	}
	defer running.byID.CompareAndDelete(id, stop)
	pod := model.PodID{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	file, err := s.Capture(r.Context(), pod, l, stop)
	switch {
	case errors.Is(err, capture.ErrBusy) || errors.Is(err, capture.ErrForeign):
		fail(http.StatusConflict, err)
	case err != nil:
		fail(http.StatusServiceUnavailable, err)
	default:
		w.Header().Set("Content-Type", "application/vnd.tcpdump.pcap")
		_, _ = w.Write(file) // an error means that the client has disconnected
	}
}

// serveStop ends a capture: its client gets the packets so far.
func (c *captures) serveStop(w http.ResponseWriter, r *http.Request) {
	stop, ok := c.byID.LoadAndDelete(r.PathValue("id"))
	if !ok {
		httpserver.JSON(w, http.StatusNotFound, map[string]string{"error": "no capture with this id runs"})
		return
	}
	close(stop.(chan struct{}))
	httpserver.JSON(w, http.StatusOK, struct{}{})
}

func parseLimits(q url.Values) (capture.Limits, error) {
	packets, errPackets := strconv.ParseUint(q.Get("packets"), 10, 32)
	size, errBytes := strconv.ParseUint(q.Get("bytes"), 10, 32)
	whole, errTime := time.ParseDuration(q.Get("time"))
	if err := errors.Join(errPackets, errBytes, errTime); err != nil {
		return capture.Limits{}, err
	}
	l := capture.Limits{Packets: uint32(packets), Bytes: uint32(size), Time: whole}
	return l, l.Validate()
}

// FetchCapture returns a pcap file with the packets of a pod, from the agent at a unix socket. It ends at a limit, or when stop is closed. The agent
// ends the capture, too, when ctx ends or this program does; then the packets are lost.
func FetchCapture(ctx context.Context, socket string, pod model.PodID, l capture.Limits, stop <-chan struct{}) ([]byte, error) {
	id := rand.Text()
	q := url.Values{
		"packets": {strconv.FormatUint(uint64(l.Packets), 10)}, "bytes": {strconv.FormatUint(uint64(l.Bytes), 10)}, "time": {l.Time.String()}, "id": {id},
	}
	whole, abandon := context.WithCancel(ctx)
	defer abandon()
	ended, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		select {
		case <-stop:
			err = request(ctx, socket, http.MethodDelete, "/capture/"+id, nil, &struct{}{})
		case <-ended:
		}
		if err != nil { // it ends just now, or has not begun
			select {
			case <-time.After(stopTime):
				abandon()
			case <-ended:
			}
		}
		failed <- err
	}()
	var file bytes.Buffer
	err := request(whole, socket, http.MethodPost, "/capture/"+url.PathEscape(pod.Namespace)+"/"+url.PathEscape(pod.Name)+"?"+q.Encode(), nil, &file)
	close(ended)
	if errStop := <-failed; err != nil {
		return nil, errors.Join(err, errStop)
	}
	return file.Bytes(), nil
}

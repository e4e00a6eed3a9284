// Crawls a site with Go's net/http: the index page, then every link on it. The proxy comes from HTTP_PROXY.
//
// Arguments and output: see README.md in this folder.
package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

type report struct {
	Statuses []int     `json:"statuses"`
	Verdicts []*string `json:"verdicts"`
	Refused  []*string `json:"refused"`
	Error    *string   `json:"error"`
}

func (r *report) get(client *http.Client, url string) string {
	answer, err := client.Get(url)
	if err != nil {
		text := err.Error()
		r.Error = &text
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	field := func(name string) *string {
		if value := answer.Header.Get(name); value != "" {
			return &value
		}
		return nil
	}
	r.Statuses = append(r.Statuses, answer.StatusCode)
	r.Verdicts = append(r.Verdicts, field("Tidegate-Verdict"))
	r.Refused = append(r.Refused, field("Tidegate-Refused"))
	return string(body)
}

func main() {
	index := os.Args[1]
	seconds := 60.0
	if given, err := strconv.ParseFloat(os.Getenv("TIMEOUT"), 64); err == nil {
		seconds = given
	}
	client := &http.Client{Timeout: time.Duration(seconds * float64(time.Second))}
	said := &report{Statuses: []int{}, Verdicts: []*string{}, Refused: []*string{}}
	page := said.get(client, index)
	for _, link := range regexp.MustCompile(`href="(/item/\d+)"`).FindAllStringSubmatch(page, -1) {
		said.get(client, strings.TrimSuffix(index, "/")+link[1])
	}
	json.NewEncoder(os.Stdout).Encode(said)
}

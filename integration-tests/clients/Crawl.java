// Crawls a site with Java's HttpClient: the index page, then every link on it. The proxy comes from the system
// properties http.proxyHost and http.proxyPort.
//
// Arguments and output: see README.md in this folder.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Crawl {
    private final HttpClient client = HttpClient.newHttpClient();
    private final long patience = Long.parseLong(System.getenv().getOrDefault("TIMEOUT", "60"));
    private final List<HttpResponse<String>> answers = new ArrayList<>();
    private String error = "null";

    String get(URI uri) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(uri).timeout(Duration.ofSeconds(patience)).build();
        try {
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            answers.add(answer);
            return answer.body();
        } catch (IOException failure) {
            error = '"' + failure.getClass().getSimpleName() + '"';
            return "";
        }
    }

    String field(String name) {
        List<String> values = new ArrayList<>();
        for (HttpResponse<String> answer : answers) {
            values.add(answer.headers().firstValue(name).map(value -> '"' + value + '"').orElse("null"));
        }
        return values.toString();
    }

    public static void main(String[] arguments) throws InterruptedException {
        URI index = URI.create(arguments[0]);
        Crawl crawl = new Crawl();
        Matcher links = Pattern.compile("href=\"(/item/\\d+)\"").matcher(crawl.get(index));
        while (links.find()) {
            crawl.get(index.resolve(links.group(1)));
        }
        System.out.printf("{\"statuses\":%s,\"verdicts\":%s,\"refused\":%s,\"error\":%s}%n",
            crawl.answers.stream().map(HttpResponse::statusCode).toList(), crawl.field("Tidegate-Verdict"),
            crawl.field("Tidegate-Refused"), crawl.error);
    }
}

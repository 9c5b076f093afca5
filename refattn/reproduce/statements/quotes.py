"""What each statement is in the papers' own words: {our words: a passage of the paper}.

None where a statement is read off a figure or a table alone.  `*` and `$` of the papers' source are left out.
"""

QUOTES = {
    "Multi-head attention is a hypernetwork":
        "multi-head attention (MHA) can be equivalently expressed as a hypernetwork with a key-query specific "
        "latent code",
    "Equation (6) is the pseudocode":
        "Pseudocode comparing multi-head softmax attention to hypernetwork linear attention",
    "With one head nothing is composed":
        "in the case of a single head the mechanism degenerates, only allowing the network to rescale the weights "
        "of the sole remaining value projection but no longer allowing it to compose multiple value projections",
    "HYLA generalises better than softmax attention":
        "We find that this modification improves compositional generalization on abstract reasoning tasks",
    "HYLA generalises better than linear attention":
        "We find that this modification improves compositional generalization on abstract reasoning tasks",
    "All models solve fuzzy logic, given enough examples":
        "We find that all models are able to solve the fuzzy logic task given sufficient examples are presented "
        "in context",
    "More examples in the context help, on average over models": None,
    "Held-out R² falls as more are held out, on average over models":
        "As the fraction of held out tasks increases, compositional generalization performance starts decreasing "
        "for all models",
    "HYLA falls less than softmax attention":
        "Interestingly, HYLA is less affected by this decline than softmax and linear attention",
    "HYLA falls less than linear attention":
        "Interestingly, HYLA is less affected by this decline than softmax and linear attention",
    "In-distribution the models differ less than on held-out combinations":
        "in-distribution the models show comparably small differences in performance",
    "Unknown terms are worse than unseen combinations of known ones, on average over models":
        "we find that none of the models considered here is able to solve such a task",
    "Applying the code twice helps, on average over all pairs that differ in it":
        "simply applying RMSHead to linear attention (Linear Attention + RMSHead) and also the attention-weighted "
        "sum operation without nonlinearity (HYLA – nonlinearity) both by themselves can slightly boost "
        "performance",
    "HYLA needs both RMSHead and the nonlinearity, on average":
        "showing that both components in combination are required to obtain the observed performance improvements",
    "RMSHead helps, on average over all recorded pairs that differ in it":
        "model ablations that separate the contributions of the RMSHead normalization and the nonlinearity added to "
        "the value network",
    "The nonlinearity helps, on average over all pairs that differ in it":
        "model ablations that separate the contributions of the RMSHead normalization and the nonlinearity added to "
        "the value network",
    "RMSHead alone helps linear attention":
        "simply applying RMSHead to linear attention (Linear Attention + RMSHead) and also the attention-weighted "
        "sum operation without nonlinearity (HYLA – nonlinearity) both by themselves can slightly boost "
        "performance",
    "The full HYLA is better than its ablations, on average": "the full HYLA model generally performs best",
    "A deeper value network does well: better than softmax attention":
        "Consistent with our hypothesis, this model also demonstrates strong OOD performance as reported in Table A1",
    "HYLA with softmax in place of RMSHead does poorly: worse than HYLA":
        "As shown in Table A1 this model performs poorly",
    "A mixture of experts helps, on average over models":
        "While we find moderate general improvements, these improvements seem to be similar to other increases of "
        "model capacity",
    "The code tells the terms of unseen tasks: better than chance":
        "it is possible to decode the terms underlying each function from the latent code using a logistic "
        "regression classifier",
    "The target explains the code only in part: the function adds to it":
        "The structure of these clusters is only partially explained by the target value of the function for a "
        "given query value",
    "All models solve 80 % of held-out SRAVEN, given data and size":
        "Given sufficient data and model size, all model classes are able to solve 80% of problem instances "
        "created from tasks held out during training",
    "More data and larger models generalise better on SRAVEN":
        "Scaling model size and data enables compositional generalization",
    "HYLA beats softmax attention on SRAVEN, with little data and a small model":
        "Especially when presented with few problem instances and for small model sizes it outperforms both "
        "linear and softmax attention",
    "One head hurts held-out accuracy on SRAVEN":
        "we observe a noticeably decrease in OOD performance in Figure 5C for the single head case",
    "SRAVEN is harder with more features":
        "its difficulty can be controlled parametrically; for instance by increasing the number of features",
    "The more rule combinations are held out, the lower the accuracy on SRAVEN": None,
    "The code tells the rule of unseen combinations: better than chance":
        "evaluated on unseen OOD tasks revealing that the latent code is predictive of the implemented rule",
    "The rule explains the code beyond what the answer does":
        "a strikingly structured code for the final layer across models with clusters closely matching the rule",
    "Later layers' codes tell the rule better":
        "This reveals that especially for later layers the latent code is strongly predictive of the subfunctions "
        "performed by the network",
    "Related rules (sum, difference) have similar codes":
        "semantically related rules like sum/difference can form clusters",
    "Less than half a percent of SRAVEN's instances is ambiguous":
        "In the settings considered here this happens for less than half a percent of the problem instances",
    "HYLA predicts text better than linear attention":
        "strengthening the hypernetwork mechanism via HYL A improves performance over linear attention",
    "HYLA predicts text about as well as softmax attention":
        "performs closely to softmax attention despite being a linear attention variant itself",
    "Multi-head attention is one rigid pairing of searches and retrievals":
        "standard multi-head attention amounts to a rigid pairing of Searches and Retrievals",
    "Retrieval scores depend on the query, with MLP scoring too":
        "Multi-Layer Perceptron (MLP) that takes the retrieval query and key as input and outputs the retrieval "
        "attention score",
    "Compositional attention is better on held-out pairings":
        "compositional attention consistently outperforms multi-head attention across a wide range of task "
        "hyperparameters in both in-distribution as well as OoD settings",
    "Compositional attention generalises better, training loss being equal":
        "compositional attention is dynamically specializing over value retrievals, allowing for better "
        "generalization on unseen value combinations in the OoD setup",
    "Compositional attention is better in-distribution":
        "compositional attention consistently outperforms multi-head attention across a wide range of task "
        "hyperparameters in both in-distribution as well as OoD settings",
    "Compositional attention is ahead at half of the steps":
        "Compositional Attention not only converges faster but also does better in low-data regime",
    "Retrievals specialise":
        "the model often specializes its retrievals according to the ground-truth (up to a permutation)",
    "Pairings are specific to what is asked, and average out over all":
        "activation statistics average out in (1), as each search features are called on in a uniform i.i.d. manner",
    "Compositional attention is better, on average over numbers of heads":
        "outperforms standard Multi-Head attention (lower is better) on out of distribution (OoD) variant of the "
        "various setups across various model capacities (low and high) and number of heads",
    "Compositional attention is better, on average over sizes of task and width":
        "outperforms standard Multi-Head attention (lower is better) on out of distribution (OoD) variant of the "
        "various setups across various model capacities (low and high) and number of heads",
    "Compositional attention is better with fewer retrievals than heads":
        "our proposed model can achieve similar or better performance, often with fewer retrievals",
    "Compositional attention is better on Sort-of-CLEVR, on average over types":
        "Compositional Transformer outperforms standard transformers across different question types (unary, "
        "binary and ternary), even with fewer searches and/or retrievals than the number of heads in the standard "
        "transformer",
    "Compositional attention is better on equilateral triangles":
        "compositional attention outperforms multi-head attention across different number of retrievals",
    "Compositional attention is better on four sets of images at a time":
        "Table 2 shows that the proposed model outperforms the baseline",
    "Compositional attention is better on objects never seen (ESBN), on average over tasks":
        "Compositional Attention outperforms Multi-Head Attention across all the tasks, especially at higher "
        "hold-out (m) values",
    "The more objects are held out, the larger its lead (ESBN)": "especially at higher hold-out (m) values",
    "Compositional attention is better on longer commands (SCAN, cut-off 26)":
        "compositional attention outperforms the standard multi-head attention across multiple cutoff lengths",
    "Compositional attention is better with MLP scoring too":
        "outperforms the multi-head attention baseline not only across different number of retrievals but also on "
        "the MLP",
    "Compositional attention predicts text better":
        "our proposed attention mechanism not only outperforms the baseline but also converges faster",
    "Compared models have parameters within about 5 %":
        "We keep the parameter counts within \\sim 5\\% of each other for the compared models",
    "A two-layer ReLU network multiplies 0/1 matrices":
        "We arrive at a two-layer ReLU network that perfectly approximates the multiplication of two binary matrices",
    "Sliding-dilated attention sees exactly its window, and the tree is the last position":
        "so that the final output can utilize every single piece of input information",
    "Linear recurrences are a parallel scan":
        "The operation can be accelerated by the parallel scan algorithm that permits efficient cumulative sum",
    "RegularGPT can compute any finite automaton, at any length":
        "the regular language problem can be solved recursively using the construction outlined in §3 and Figure 1",
    "RegularGPT beats a vanilla Transformer on longer words":
        "RegularGPT with C = 2 acheives similar performance as an RNN and substantially outperforms a vanilla "
        "Transformer",
    "RegularGPT and an RNN do about equally well on longer words":
        "RegularGPT with C = 2 acheives similar performance as an RNN and substantially outperforms a vanilla "
        "Transformer",
    "A chunk of 3 makes PARITY harder than one of 2":
        "Increasing C is likely to increase the task difficulty by composing more state transitions at once",
    "RegularGPT is cheaper than L layers of attention where K < 3.11 L":
        "as long as K < 3L, our model is likely to be more efficient than a vanilla Transformer",
    "Modular Arithmetic is too hard for a chunk of 3":
        "a larger C seems to pose a challenge to RegularGPT on the Modular Arithmetic task",
    "RegularGPT and an RNN do about equally well on all twelve languages":
        "RegularGPT with C = 2 acheives similar performance as an RNN and substantially outperforms a vanilla "
        "Transformer",
    "RegularGPT is robust to other probabilities of a 1": "RegularGPT is robust to different sampling probabilities",
    "A Transformer is not robust to them, even at trained lengths, on average":
        "a vanilla Transformer model struggles to achieve good performance even for the same length setting",
    "Layer outputs cluster by the automaton's maps: PARITY (2 maps)":
        "PARITY has 2 clusters and Cycle Navigation has 5 clusters",
    "Layer outputs cluster by the automaton's maps: Cycle (5 maps)":
        "PARITY has 2 clusters and Cycle Navigation has 5 clusters",
    "The receptive field reaches further back than before training":
        "we would like to see the receptive field covering the whole input sequence for the case of regular languages",
    "The receptive field is a straight line":
        "This is equivalent to a slanted line going from the lower right to the upper left, which is validated in "
        "Figure 4a",
    "Trained on text, RegularGPT looks at a local window":
        "RegularGPT settles on the local windowed-attention pattern as those enforced manually in prior work",
    "RegularGPT loses where a new level begins":
        "it fails to recursively model more than 32^2 = 1024 tokens during inference",
    "RegularGPT keeps its perplexity up to what its trained levels can read":
        "this time it is able to extrapolate until 64^{\\lceil \\log_{64} 512 \\rceil} = 4096",
    "KERPLE loses less than T5 where texts are longer": None,
    "ALiBi loses less than T5 where texts are longer": None,
    "More sub-layers predict better":
        "128/12 performs better than 128/6, implying RegularGPT's performance could be improved by stacking more "
        "layers",
}
